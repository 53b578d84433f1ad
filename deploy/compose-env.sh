#!/bin/sh
# Writes .env with random secrets, and bounds that fit this machine, for `docker compose up`; an existing .env
# stays as it is. The folder is the project, or the argument.
set -eu
cd "${1:-$(dirname "$0")/..}"
[ -e .env ] && { echo ".env is there already"; exit 0; }
# Docker refuses more processors than its machine has.
cpus=$(docker info --format '{{.NCPU}}' 2>/dev/null || true)
case $cpus in '' | 0 | *[!0-9]*) cpus=$(getconf _NPROCESSORS_ONLN) ;; esac
at_most() { if [ "$cpus" -lt "$1" ]; then echo "$cpus"; else echo "$1"; fi; }
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
API_CPUS=$(at_most 2)
WORKER_CPUS=$(at_most 4)
GPU_WORKER_CPUS=$(at_most 8)
SERVICE_CPUS=$(at_most 2)
END
echo ".env written; the API key is MILLRACE_BOOTSTRAP_API_KEY in it"
