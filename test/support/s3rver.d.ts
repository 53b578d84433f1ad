declare module 's3rver' {
  interface Options {
    port: number
    address: string
    silent: boolean
    directory: string
    configureBuckets: { name: string; configs: unknown[] }[]
    /** The domain behind `<bucket>.s3.` of virtual hosts. */
    serviceEndpoint?: string
    cert?: Buffer
    key?: Buffer
  }
  class S3rver {
    constructor(options: Options)
    run(): Promise<{ port: number }>
    close(): Promise<void>
  }
  export = S3rver
}
