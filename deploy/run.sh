#!/bin/sh
# Read each secret from its file into a variable, then become the program: SECRETS="NAME=/run/secrets/x …" makes NAME.
set -eu
for secret in ${SECRETS:-}; do
  value=$(cat "${secret#*=}")  # without the line break at its end
  export "${secret%%=*}=$value"
done
unset SECRETS value
exec "$@"
