#!/usr/bin/env node
// The command `millrace`: the launcher's command line under the project's own Node.
process.argv.splice(2, 0, 'launcher/cli.ts')
await import('./bootstrap.mjs')
