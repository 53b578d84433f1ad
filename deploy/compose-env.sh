#!/bin/sh
# Writes .env with random secrets for `docker compose up`; an existing .env stays as it is. The folder is
# the project, or the argument.
set -eu
cd "${1:-$(dirname "$0")/..}"
[ -e .env ] && { echo ".env is there already"; exit 0; }
secret() { head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n'; }
umask 077
cat > .env <<END
AUTH_JWT_SECRET=$(secret)
MILLRACE_URL_SIGNING_SECRET=$(secret)
MILLRACE_ADMIN_TOKEN=$(secret)
MILLRACE_ENCRYPTION_KEY=$(secret)
MILLRACE_BOOTSTRAP_API_KEY=mr-$(secret)
POSTGRES_PASSWORD=$(secret)
GRAFANA_PASSWORD=$(secret)
S3_ACCESS_KEY_ID=$(secret | cut -c1-20)
S3_SECRET_ACCESS_KEY=$(secret)
END
echo ".env written; the API key is MILLRACE_BOOTSTRAP_API_KEY in it"
