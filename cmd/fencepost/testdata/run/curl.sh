# The requests of the arguments, with curl and the option that comes first. See
# run_clients_test.go.
set -eu
option=$1 body=$(mktemp)
trap 'rm "$body"' EXIT
shift
while [ $# -ge 3 ]; do
  method=$1 url=$2 key=$3
  shift 3
  : >"$body"
  if [ "$method" = POST ]; then
    curl -sS -m 60 "$option" -o "$body" -w '%{http_code}\t%{http_version}\t%header{idempotent-replayed}\t' -H "Idempotency-Key: $key" -d amount=1 "$url"
  else
    curl -sS -m 60 "$option" -o "$body" -w '%{http_code}\t%{http_version}\t\t' "$url"
  fi
  tr -s ' \t\n' ' ' <"$body"
  echo
done
