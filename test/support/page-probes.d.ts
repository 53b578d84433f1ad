export function findFaintTexts(): string[]
export function overhang(): number
export function countForeignPictures(): number
