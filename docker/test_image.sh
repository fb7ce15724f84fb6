#!/usr/bin/env bash
# Builds the cpu image without a Docker engine or a registry, and tries what it promises.
#
# On a Debian made with debootstrap, buildah builds docker/Dockerfile. The built root then runs as in a container:
# read-only, without a network, as the image's user without capabilities, with nothing to write to but /tmp and
# /models. The image's own health check must pass; the client's transcripts must be the golden ones, in both of its
# dialects; SIGTERM in the middle of a stream must lose nothing and end with exit code 0. Sizes and times are printed.
#
# Needs root, Debian's packages buildah, debootstrap, iproute2 and python3, 10 GB of disk and about 15 minutes. No
# part of the test suite. What it makes lies in one folder and goes at the end.
#
#   PIP_CONFIG_FILE  pip's configuration during the build (a proxy, another index); never part of the image
#   TORCH_INDEX      where torch comes from, instead of PyTorch's index; empty: pip's own index
#   BUILD_VOLUMES    SOURCE:TARGET:ro ..., folders and files that the build sees, such as a certificate or wheels
#   DEBIAN_MIRROR    for debootstrap and the build's apt-get
#   BASE_TAR         a root file system made earlier, instead of debootstrap
#   SCRATCH          the folder to use and to keep, instead of a new one
#   STORAGE_DRIVER   buildah's (vfs)
set -euo pipefail
cd "$(dirname "$0")/.."

began=$EPOCHSECONDS
readonly SUITE=bookworm BASE=localhost/transom-test-base IMAGE=localhost/transom-test
readonly START_DEADLINE_S=120

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

say() {
    printf '== [%d s] %s\n' $((EPOCHSECONDS - began)) "$*"
}

storage() { # buildah with storage of its own
    buildah --root "$scratch/storage" --runroot "$scratch/run" --storage-driver "${STORAGE_DRIVER:-vfs}" "$@"
}

check_machine() {
    [[ $(id -u) == 0 ]] || fail "run it as root: it mounts and changes users"
    local tool
    for tool in buildah debootstrap ip python3 unshare; do
        command -v "$tool" >/dev/null || fail "there is no $tool: apt-get install buildah debootstrap iproute2 python3"
    done
}

make_base() {
    local container root
    container=$(storage from scratch)
    root=$(storage mount "$container")
    if [[ -n ${BASE_TAR:-} ]]; then
        tar --extract --file "$BASE_TAR" --directory "$root" --numeric-owner
    else
        debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv \
            "$SUITE" "$root" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} >"$scratch/debootstrap.log" ||
            fail "debootstrap: $(tail -n 3 "$scratch/debootstrap.log")"
        rm -rf "${root:?}"/var/cache/apt/* "${root:?}"/var/lib/apt/lists/*
    fi
    storage umount "$container" >/dev/null
    storage commit --quiet --rm "$container" "$BASE" >/dev/null
}

build_image() {
    local volume options=(--build-arg "PYTHON_IMAGE=$BASE")
    [[ -z ${TORCH_INDEX+set} ]] || options+=(--build-arg "TORCH_INDEX=$TORCH_INDEX")
    [[ -z ${PIP_CONFIG_FILE:-} ]] || options+=(--secret "id=pip.conf,src=$PIP_CONFIG_FILE")
    for volume in ${BUILD_VOLUMES:-}; do
        options+=(--volume "$volume")
    done
    storage build --isolation chroot --format docker --file docker/Dockerfile --target cpu --tag "$IMAGE" \
        "${options[@]}" . >"$scratch/build.log" 2>&1 || fail "the build: $(tail -n 20 "$scratch/build.log")"
}

image_config() { # NAME: a list of the image's configuration, each item ended by NUL
    storage inspect --type image "$IMAGE" |
        python3 -c 'import json, sys
value = json.load(sys.stdin)["Docker"]["config"][sys.argv[1]]
value = value["Test"][1:] if sys.argv[1] == "Healthcheck" else [value] if isinstance(value, str) else value
sys.stdout.write("".join(item + "\0" for item in value))' "$1"
}

check_config() {
    local user
    user=$(image_config User | tr -d '\0')
    [[ $user == 10001:10001 ]] || fail "the image's user is '$user'"
    local tool
    for tool in cc gcc clang pip pip3; do
        [[ ! -e $root/usr/bin/$tool && ! -e $root/opt/transom/bin/$tool ]] || fail "the image has $tool"
    done
}

print_sizes() {
    storage push --quiet --format oci "$IMAGE" "oci:$scratch/oci:test"
    python3 - "$scratch/oci" <<'PYTHON'
import gzip, json, pathlib, shutil, sys

class Counter:
    size = 0
    def write(self, data):
        self.size += len(data)

folder = pathlib.Path(sys.argv[1])
blob = lambda digest: folder / "blobs" / digest.replace(":", "/")
index = json.loads((folder / "index.json").read_text())
manifest = json.loads(blob(index["manifests"][0]["digest"]).read_text())
config = json.loads(blob(manifest["config"]["digest"]).read_text())
steps = [step["created_by"] for step in config["history"] if not step.get("empty_layer")]
assert len(steps) == len(manifest["layers"]), "layers without a history"
print(f"{'MB':>8}{'MB gzip':>9}  layer")
total = [0, 0]
for layer, step in zip(manifest["layers"], steps):
    counter = Counter()
    with gzip.open(blob(layer["digest"])) as file:
        shutil.copyfileobj(file, counter, 1 << 20)
    total = [total[0] + counter.size, total[1] + layer["size"]]
    print(f"{counter.size / 1e6:8.1f}{layer['size'] / 1e6:9.1f}  {' '.join(step.split())[:90]}")
print(f"{total[0] / 1e6:8.1f}{total[1] / 1e6:9.1f}  together")
PYTHON
    echo "of it (each without what stands above it):"
    local packages
    packages=$(compgen -G "$root/opt/transom/lib/python3*/site-packages")
    du --apparent-size --block-size=MB --summarize "$packages/torch" "$packages/transom/weights/bundled" \
        "$packages" "$root/opt/native" | sed "s|$root||"
}

# What follows runs in namespaces of its own, in a shell that knows these functions.

enter_root() { # make $view a container's root file system
    mount --make-rprivate /
    mount --bind "$root" "$view"
    mount --options remount,bind,ro "$view"
    mount --types tmpfs --options mode=1777,nosuid,nodev,noexec,size=64m tmpfs "$view/tmp"
    mount --types tmpfs --options uid=10001,gid=10001,mode=0700,nosuid,nodev tmpfs "$view/models"
    mount --types tmpfs --options mode=0755,nosuid,noexec,size=64k tmpfs "$view/dev"
    local device
    for device in null zero random urandom; do
        touch "$view/dev/$device"
        mount --bind "/dev/$device" "$view/dev/$device"
    done
    mount --types proc proc "$view/proc"
    mount --types tmpfs tmpfs "$view/mnt"
    mkdir "$view/mnt/clients" "$view/mnt/golden"
    mount --bind --options ro clients "$view/mnt/clients"
    mount --bind --options ro tests/golden "$view/mnt/golden"
    ip link set lo up
}

in_image() { # COMMAND...: as the image's user, with its environment
    exec env --ignore-environment "${environment[@]}" "TRANSOM_API_KEYS=$key" "OPENAI_API_KEY=$key" \
        chroot "$view" setpriv --reuid 10001 --regid 10001 --clear-groups --no-new-privs --inh-caps=-all \
        --bounding-set=-all "$@"
}

is_healthy() { # by the image's own check
    (in_image "${health[@]}") 2>/dev/null
}

is_ready() { # by a question that costs no process of Python's
    { printf 'GET /readyz HTTP/1.0\r\n\r\n' >&3 && grep -q '^HTTP/1.1 200 ' <&3; } 3<>/dev/tcp/127.0.0.1/8000
} 2>/dev/null

transcript() { # OPTION...: what the client prints
    (in_image python /mnt/clients/openai_realtime_client.py --host 127.0.0.1 "$@")
}

golden() { # NAME
    python3 -c 'import json, sys; print(json.load(open("tests/golden/transcripts.json"))[sys.argv[1]]["text"])' "$1"
}

resident_mib() {
    awk '/^VmRSS:/ { print int($2 / 1024) }' "/proc/$server/status"
}

start_server() {
    local started=$EPOCHREALTIME
    (in_image "${entrypoint[@]}" "${command[@]}") >"$scratch/server.log" 2>&1 &
    server=$!
    until is_ready; do
        kill -0 "$server" 2>/dev/null || fail "the server ended: $(cat "$scratch/server.log")"
        ((EPOCHSECONDS - ${started%.*} < START_DEADLINE_S)) ||
            fail "not ready in $START_DEADLINE_S s: $(cat "$scratch/server.log")"
        sleep 0.1
    done
    local wall_ms=$(((${EPOCHREALTIME/./} - ${started/./}) / 1000)) stat
    read -ra stat <"/proc/$server/stat"
    local cpu_ms=$(((stat[13] + stat[14]) * 1000 / $(getconf CLK_TCK)))
    is_healthy || fail "the image's health check does not see that the server is ready"
    say "ready $wall_ms ms after its start, $cpu_ms ms of processor time, $(resident_mib) MiB resident"
}

check_server() {
    grep -q 'native kernels' "$scratch/server.log" || fail "its CPU kernels are not used: $(cat "$scratch/server.log")"
    grep -Eq '^Uid:\s+10001\s+10001' "/proc/$server/status" || fail "the server runs as another user"
    grep -Eq '^CapEff:\s+0+$' "/proc/$server/status" || fail "the server has capabilities"
    grep -Eq '^NoNewPrivs:\s+1$' "/proc/$server/status" || fail "the server may gain privileges"
    ! (in_image touch /opt/transom/written) 2>/dev/null || fail "the root file system can be written to"
    (in_image touch /models/written) || fail "the model cache cannot be written to"
}

check_transcripts() {
    local name dialect
    for dialect in openai vllm; do
        for name in room.wav clock.flac river.ogg letter.mp3 telephone.wav; do
            [[ $dialect == vllm || $name == clock.flac ]] || continue # openai's 24 kHz are resampled once more
            local text
            text=$(transcript "/mnt/golden/audio/$name" --dialect "$dialect") || fail "the client failed on $name"
            [[ $text == "$(golden "$name")" ]] || fail "$name in $dialect gave: $text"
            echo "$name, $dialect: $text"
        done
    done
    ! key=wrong transcript /mnt/golden/audio/room.wav 2>/dev/null || fail "a wrong key was let in"
}

streams_active() {
    (in_image python -c 'import urllib.request
text = urllib.request.urlopen("http://127.0.0.1:8000/metrics").read().decode()
print(int(sum(float(line.split()[1]) for line in text.splitlines() if line.startswith("transom_streams_active"))))')
}

check_drain() {
    transcript /mnt/golden/audio/room.wav --realtime --dialect vllm >"$scratch/drained.txt" 2>"$scratch/client.log" &
    local client=$! status=0
    until [[ $(streams_active) == 1 ]]; do
        kill -0 "$client" 2>/dev/null || fail "the client ended early: $(cat "$scratch/client.log")"
    done
    kill -TERM "$server"
    while is_healthy; do :; done
    kill -0 "$client" 2>/dev/null || fail "the stream did not outlive the beginning of the drain"
    wait "$client" || fail "SIGTERM broke a stream: $(cat "$scratch/client.log")"
    wait "$server" || status=$?
    [[ $(<"$scratch/drained.txt") == "$(golden room.wav)" ]] ||
        fail "the drained stream gave: $(cat "$scratch/drained.txt")"
    [[ $status == 0 ]] || fail "the server ended with exit code $status: $(cat "$scratch/server.log")"
}

try_image() {
    set -euo pipefail
    local environment entrypoint command health key server
    key=$(od -A n -t x1 -N 16 /dev/urandom | tr -d ' \n')
    mapfile -d '' environment <"$scratch/Env"
    mapfile -d '' entrypoint <"$scratch/Entrypoint"
    mapfile -d '' command <"$scratch/Cmd"
    mapfile -d '' health <"$scratch/Healthcheck"
    enter_root
    start_server
    check_server
    check_transcripts
    say "transcripts are the golden ones; $(resident_mib) MiB resident"
    check_drain
    say "SIGTERM lost nothing and gave exit code 0"
}

clean_up() {
    storage rm --all >"$scratch/clean_up.log" 2>&1 || cat "$scratch/clean_up.log" >&2 # it unmounts them, too
    [[ -n ${SCRATCH:-} ]] || rm -rf "$scratch"
}

main() {
    check_machine
    scratch=${SCRATCH:-$(mktemp --directory /var/tmp/transom-image.XXXXXX)}
    mkdir -p "$scratch/view"
    trap clean_up EXIT
    say "the base"
    storage inspect --type image "$BASE" >/dev/null 2>&1 || make_base
    say "the image"
    build_image
    local container name
    container=$(storage from "$IMAGE")
    root=$(storage mount "$container") view=$scratch/view
    check_config
    for name in Env Entrypoint Cmd Healthcheck; do
        image_config "$name" >"$scratch/$name"
    done
    say "the server in it"
    export began scratch root view START_DEADLINE_S
    export -f fail say enter_root in_image is_healthy is_ready transcript golden resident_mib start_server check_server \
        check_transcripts streams_active check_drain try_image
    unshare --mount --net --ipc --pid --fork --kill-child --mount-proc bash -c try_image
    say "its size"
    print_sizes
    say "passed"
}

main
