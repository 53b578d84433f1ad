import { sendInvitation } from '#api/auth/admin/send-invitation.ts'
import { describeRequest } from '#api/auth/guards.ts'
import { withQuery } from '#api/auth/redirects/redirect-url.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { parseEmail } from '#api/auth/users/contact.ts'
import type { InvitationMailer } from '#api/organizations/invitation-routes.ts'
import { callerOf } from '#api/v1/request-context.ts'

/**
 * Names an invitation in the redirect target of its link, so that the site can show it. Following
 * the link signs the user in and never joins: that takes `POST /v1/invitations/{id}/accept`.
 */
const PARAMETER = 'organization_invitation'

/** The user server sends the invitations to organizations. */
export function invitationMailerOf(auth: AuthServices): InvitationMailer {
  return {
    parseEmail,
    async send({ email, invitationId, organizationName, role, request }) {
      const redirectTo = withQuery(auth.config.site.url, { [PARAMETER]: invitationId })
      const asked = { ...describeRequest(auth, request, undefined), redirectTo }
      await sendInvitation(auth, asked, {
        email,
        inviterId: callerOf(request).userId,
        data: { organization: organizationName, role },
      })
    },
  }
}
