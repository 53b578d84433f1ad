export function findFaintTexts(): string[]
export function overhang(): number
export function countForeignPictures(): number
export function noteMicrophones(): void
export function microphones(): number
