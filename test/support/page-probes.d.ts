export function findFaintTexts(): string[]
export function overhang(): number
export function countForeignImages(): number
export function findInjected(): string[]
export function noteMicrophones(): void
export function microphones(): number
export function reopenDialog(): void
