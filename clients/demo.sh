#!/usr/bin/env bash
# Starts a server on the bundled model and streams a recording to it at the pace of speech.
set -euo pipefail
cd "$(dirname "$0")"

log=$(mktemp)
transom serve --port 0 --log-level warning >"$log" &
server=$!
trap 'kill "$server" 2>/dev/null; wait "$server" 2>/dev/null || true; rm -f "$log"' EXIT

echo "Starting the server on the bundled model ..."
until url=$(grep -o 'http://[^ ]*' "$log"); do
    kill -0 "$server" 2>/dev/null || { echo "The server did not start." >&2; exit 1; }
    sleep 0.2
done
cat "$log"
echo "A synthetic voice speaks; these are the words as they come (small model: expect mistakes):"
python openai_realtime_client.py demo.wav --url "${url/http/ws}" --realtime --timing --reference demo.txt
