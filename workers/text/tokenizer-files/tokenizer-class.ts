import type { SentencePieceModel } from './sentencepiece.ts'
import type { AddedToken, Roles, UsualTokens } from './special-tokens.ts'
import type { Step } from './steps.ts'

type Json = Readonly<Record<string, unknown>>

/** A class of tokenizers of transformers, whose own files make up a `tokenizer.json`. */
export interface TokenizerClass {
  /** Its names without `Tokenizer`, and those of classes that read files alike. */
  readonly names: string
  /** The `model_type` of models whose folders name no class. */
  readonly modelTypes: string
  /** A file that no other class has, so that its folder need not name the class. */
  readonly file?: string
  /** Special tokens that its files need not name. */
  readonly tokens: UsualTokens
  build(folder: TokenizerFolder): Promise<TokenizerParts>
}

/** The files of a tokenizer. All methods throw an error that names the file. */
export interface TokenizerFolder {
  readonly settings: Json
  readonly roles: Roles
  readPieces(name?: string): Promise<SentencePieceModel>
  readText(name: string): Promise<string>
  readJson(name: string): Promise<Json>
  /** The ids of `vocab.json`, or of another file. */
  readIds(name?: string): Promise<Readonly<Record<string, number>>>
  /** The pairs of `merges.txt`. */
  readMerges(): Promise<readonly string[]>
  /** The lines of `vocab.txt`. */
  readWords(): Promise<readonly string[]>
}

/** The parts of a `tokenizer.json`, and what else a class determines. */
export interface TokenizerParts {
  readonly model: Json
  readonly normalizer?: Step | null
  readonly pre_tokenizer?: Step | null
  readonly decoder: Step
  /** The tokens around a text and around two texts; see `postProcessorOf`. */
  readonly template?: readonly [string, string]
  /** Tokens that are found in a text before it is split; those without an id are in the model. */
  readonly found?: readonly (Omit<AddedToken, 'id'> & Partial<Pick<AddedToken, 'id'>>)[]
  /** The vocabulary of answers, if it is not that of texts. */
  readonly answers?: Readonly<Record<string, number>>
  /** Special tokens of the class beyond its roles. */
  readonly additional?: readonly string[]
}
