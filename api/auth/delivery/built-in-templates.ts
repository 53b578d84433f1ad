import type { MailKind } from '#shared/config/auth-mail.ts'

/** The bodies of mails without a configured template. */
export const BUILT_IN_TEMPLATES: Readonly<Record<MailKind, string>> = {
  invite: withLink({
    heading: 'You have been invited',
    // `has_account` marks an invitation to an organization, and whether the address has an account.
    sentence:
      '{{ if eq .Data.has_account true }}You have been invited to join {{ .Data.organization }} on {{ .SiteURL }} with the account that you have. Follow this link to sign in and accept the invite:' +
      '{{ else if eq .Data.has_account false }}You have been invited to join {{ .Data.organization }} on {{ .SiteURL }}. Follow this link to create your user and accept the invite:' +
      '{{ else }}You have been invited to create a user on {{ .SiteURL }}. Follow this link to accept the invite:{{ end }}',
    link: 'Accept the invite',
  }),
  confirmation: withLink({
    heading: 'Confirm your email',
    sentence: 'Follow this link to confirm your email:',
    link: 'Confirm your email address',
  }),
  recovery: withLink({
    heading: 'Reset password',
    sentence: 'Follow this link to reset the password for your user:',
    link: 'Reset password',
  }),
  magicLink: withLink({
    heading: 'Magic Link',
    sentence: 'Follow this link to sign in:',
    link: 'Log in',
  }),
  emailChange: withLink({
    heading: 'Confirm email address change',
    sentence:
      'Follow this link to confirm the update of your email address from {{ .Email }} to {{ .NewEmail }}:',
    link: 'Change email address',
  }),
  reauthentication: `<h2>Confirm reauthentication</h2>

<p>Enter the code: {{ .Token }}</p>
`,
}

function withLink(words: { heading: string; sentence: string; link: string }): string {
  return `<h2>${words.heading}</h2>

<p>${words.sentence}</p>
<p><a href="{{ .ConfirmationURL }}">${words.link}</a></p>
<p>Alternatively, enter the code: {{ .Token }}</p>
`
}
