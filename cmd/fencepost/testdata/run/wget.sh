# The requests of the arguments, with wget. See run_clients_test.go.
set -eu
dir=$(mktemp -d)
trap 'rm -r "$dir"' EXIT
while [ $# -ge 3 ]; do
  method=$1 url=$2 key=$3
  shift 3
  code=0
  if [ "$method" = POST ]; then
    wget -q -S -O "$dir/body" --content-on-error -T 60 -t 1 --header "Idempotency-Key: $key" --post-data amount=1 "$url" 2>"$dir/head" || code=$?
  else
    wget -q -S -O "$dir/body" --content-on-error -T 60 -t 1 "$url" 2>"$dir/head" || code=$?
  fi
  # 8 is an answer that says no.
  if [ $code != 0 ] && [ $code != 8 ]; then
    cat "$dir/head" >&2
    exit $code
  fi
  printf '%s\t-\t%s\t' "$(sed -n 's,^ *HTTP/1.. \([0-9]*\).*,\1,p' "$dir/head" | tail -n 1)" "$(sed -n 's,^ *Idempotent-Replayed: ,,p' "$dir/head")"
  tr -s ' \t\n' ' ' <"$dir/body"
  echo
done
