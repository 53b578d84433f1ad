import { defineConfig } from 'vitepress'

const page = (text, link) => ({ text, link })

/** The site of the documentation: the Markdown of the repository, with the generated reference. */
export default defineConfig({
  title: 'Millrace',
  description: 'A self-hosted inference platform',
  srcDir: '.vitepress/source',
  // The path of the site on its host, without a slash at the end: '/millrace' for a project page of GitHub.
  base: `${process.env.SITE_BASE ?? ''}/`,
  outDir: '../dist/site',
  cacheDir: '../dist/site-cache',
  cleanUrls: true,
  // Addresses of a running installation, and files that are not pages.
  ignoreDeadLinks: [/^https?:\/\/localhost/, /LICENSE$/, /\.env\.example$/],
  markdown: {
    // Names in angle brackets are text, not elements.
    html: false,
    // Braces of templates in code are text, not expressions of the page.
    config({ renderer: { rules } }) {
      const inline = rules.code_inline
      rules.code_inline = (...args) => inline(...args).replace(/^<code/, '<code v-pre')
    },
  },
  themeConfig: {
    search: { provider: 'local' },
    nav: [
      page('Quick start', '/docs/quick-start'),
      page('Clients', '/docs/clients'),
      page('Operations', '/deploy/'),
      page('Configuration', '/docs/reference/configuration'),
      page('API', '/docs/reference/api'),
    ],
    sidebar: [
      {
        text: 'Start',
        items: [
          page('Quick start', '/docs/quick-start'),
          page('Concepts', '/docs/concepts'),
          page('Architecture', '/ARCHITECTURE'),
          page('Moving from another server', '/docs/moving-to-millrace'),
          page('Moving from Supabase', '/docs/moving-from-supabase-auth'),
        ],
      },
      {
        text: 'Use',
        items: [
          page('Clients', '/docs/clients'),
          page('Models', '/docs/models'),
          page('Background jobs', '/docs/background-jobs'),
          page('Fine-tuning', '/docs/guides/fine-tune'),
          page('Auth hooks', '/docs/auth-hooks'),
          page('Absent features', '/docs/absent-features'),
        ],
      },
      {
        text: 'Operate',
        items: [
          page('Run it', '/deploy/'),
          page('Sizing', '/docs/sizing'),
          page('High availability', '/docs/high-availability'),
          page('Console', '/docs/console'),
          page('Runbooks', '/docs/runbooks'),
          page('Security', '/SECURITY'),
        ],
      },
      {
        text: 'Reference',
        items: [
          page('Configuration', '/docs/reference/configuration'),
          page('API', '/docs/reference/api'),
          page('Benchmarks', '/bench/'),
          page('Performance', '/docs/performance'),
          page('Changelog', '/CHANGELOG'),
        ],
      },
      {
        text: 'Contribute',
        items: [
          page('Contributing', '/CONTRIBUTING'),
          page('Add an endpoint', '/docs/guides/add-an-endpoint'),
          page('Add an identity provider', '/docs/guides/add-an-identity-provider'),
          page('Add a model kind', '/docs/guides/add-a-model-kind'),
          page('Add a decoder architecture', '/docs/guides/add-a-decoder-architecture'),
          page('Add a setting', '/docs/guides/add-a-setting'),
          page('Add a migration', '/docs/guides/add-a-migration'),
          page('Decisions', '/docs/decisions/'),
          page('Dependencies', '/docs/dependencies'),
        ],
      },
    ],
  },
})
