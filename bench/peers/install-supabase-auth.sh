#!/bin/sh
# Builds Supabase's auth server beside the project. Needs git and Go.
#
#     sh bench/peers/install-supabase-auth.sh [repository]
set -eu
cd "$(dirname "$0")/../.."
version=v2.176.0
folder=.data/peers/supabase-auth
rm -rf "$folder"
git clone --quiet --depth 1 --branch "$version" "${1:-https://github.com/supabase/auth}" "$folder"
cd "$folder"
go build -o auth .
