import { ownActivity } from './activities/own-activity.ts'
import { describeRequest } from './auth/guards.ts'
import { parseEmail } from './auth/identity/contact.ts'
import { withQuery } from './auth/identity/redirect-url.ts'
import type { AuthServices, Redeemed } from './auth/services.ts'
import { sendInvitation } from './auth/steps/send-invitation.ts'
import type { InvitationMailer } from './organizations/invitation-routes.ts'
import type { Invitations, ReceivedInvitation } from './organizations/invitations.ts'
import type { Services } from './services.ts'
import { callerOf } from './v1/caller.ts'

/** Names an invitation in the redirect target of the link that was mailed for it. */
const PARAMETER = 'organization_invitation'

/** Invitations to organizations leave through the user server. */
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

/**
 * Makes who followed the link of an invitation a member. A new user who types the code of the mail
 * instead accepts all that invite them.
 */
export function acceptFollowed(
  services: Pick<Services, 'activityWriter' | 'clock' | 'log'>,
  invitations: Invitations,
): (redeemed: Redeemed) => Promise<void> {
  return async ({ userId, isInvitation, redirectTo, requestId }) => {
    const named = URL.canParse(redirectTo)
      ? new URL(redirectTo).searchParams.get(PARAMETER)
      : undefined
    if (!named && !isInvitation) return
    const received = await invitations.received(userId)
    for (const { id } of named ? received.filter((one) => one.id === named) : received) {
      const accepted = await invitations.accept(userId, id).catch((error: unknown) => {
        // It stays open: the user can accept it by hand and is told then why it cannot be.
        services.log.warn({ operation: 'invitation.accept', err: error, invitationId: id }, 'open')
        return undefined
      })
      if (accepted === undefined) continue
      services.activityWriter.write(
        acceptance(accepted, { userId, requestId, atMs: services.clock.now() }),
      )
    }
  }
}

function acceptance(
  { id, role, organizationId }: ReceivedInvitation,
  by: { readonly userId: string; readonly requestId: string | undefined; readonly atMs: number },
) {
  return ownActivity({
    ...{ type: 'Accept', event: 'invitation.accepted', organizationId },
    ...{ actor: `user:${by.userId}`, requestId: by.requestId, atMs: by.atMs },
    object: { id: `invitation:${id}`, type: 'Invitation', role },
    target: { id: `organization:${organizationId}`, type: 'Organization' },
  })
}
