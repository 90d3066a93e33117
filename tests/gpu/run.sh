#!/usr/bin/env bash
# The product on real SGLang, on a machine with one NVIDIA GPU: see README.md beside this file.
#   bash tests/gpu/run.sh hook      the missing hook fails with its class; the patch puts it back
#   bash tests/gpu/run.sh sweep     base, good and weak drafter, two blocks; run again, it goes on
#   bash tests/gpu/run.sh drafters  what SGLang does with each broken drafter, beside the prediction
#   bash tests/gpu/run.sh short     base and good drafter, one block: does it all work there?
#   bash tests/gpu/run.sh bench     the same, with SGLang's own client beside ours
#   bash tests/gpu/run.sh bench-missing  a client that lacks a package; a profile of plain decoding
#   bash tests/gpu/run.sh x2-screen two GPUs: all-reduce under NCCL's levels, one start for proof
#   bash tests/gpu/run.sh x2        two GPUs: the sweep, with what that screen leaves (or a new one)
#   bash tests/gpu/run.sh profile   base and good drafter, one block, with a profile; fixtures of it
#   bash tests/gpu/run.sh x2-ranked two GPUs: a screen, then trials of all its levels, to hold the rankings together
#   bash tests/gpu/run.sh x8        eight GPUs (GPUS=4: four): all of it, in the background; again, it tells how far
# Needs: SGLang under /tmp/site, target and drafters under /tmp/m, the controller's packages under
# /tmp/product, an OpenSSH server on 127.0.0.1:2222 with its keys under /tmp/sshkeys.
set -uo pipefail
HERE=$(cd "$(dirname "$0")" && pwd); ROOT=$(cd "$HERE/../.." && pwd)
OUT=${OUT:-/tmp/out}; mkdir -p "$OUT"
export EAGLE3_HOME=${EAGLE3_HOME:-/tmp/e3} PYTHONUNBUFFERED=1 COLUMNS=120 TERM=dumb
sweep() { (cd "$HERE" && env PYTHONPATH="$ROOT:/tmp/product" "${PYTHON:-python3}" -c 'from flows.cli import main; main()' "$@"); }
keep() { tar -C "$EAGLE3_HOME" --exclude='*.part' -czf "$OUT/runs.tgz" runs; }
mkdir -p "$HERE/prompts"
[ -f /tmp/m/prompts.jsonl ] && "${PYTHON:-python3}" "$HERE/prepare.py" prompts /tmp/m/prompts.jsonl "$HERE/prompts/kit.jsonl"
target_x2() {
  [ -f /tmp/n/tp/config.json ] && [ -f "$HERE/prompts/x2.jsonl" ] && return
  env PYTHONPATH=/tmp/site "${PYTHON:-python3}" "$HERE/prepare.py" target "${KIT:-/tmp/h200}" /tmp/n/tp "$HERE/prompts/x2.jsonl"
}
x8_all() { # what x8 does in the background, under /tmp/n/x8; what is there already is not done again
  [ -f "$X8/target/config.json" ] && [ -f "$X8/configs/sweeps/$NAME.yaml" ] ||
    env PYTHONPATH=/tmp/site "${PYTHON:-python3}" "$HERE/prepare.py" x8 "${KIT:-/tmp/h200}" "$X8" "$GPUS" || return
  cd "$X8" || return
  ls "$EAGLE3_HOME/runs/$NAME".screen/*/screen.json >/dev/null 2>&1 || product screen "screening/$NAME.yaml" || return
  product run "$NAME"
}
product() { env PYTHONPATH="$ROOT:/tmp/product" "${PYTHON:-python3}" -c 'from flows.cli import main; main()' "$@"; }
X8=${X8:-/tmp/n/x8} GPUS=${GPUS:-8}; NAME=h200-x$GPUS
case ${1:-sweep} in
hook)
  FILE=/tmp/site/sglang/srt/models/llama.py; cp "$FILE" /tmp/llama.before
  "${PYTHON:-python3}" "$HERE/prepare.py" remove-hook "$FILE"; cp "$FILE" /tmp/llama.removed
  sweep run h200-no-hook; echo "exit $?"
  sweep run h200-hook; echo "exit $?"
  cmp "$FILE" /tmp/llama.removed && echo "the patch was reverted: the file is as it was before the sweep"
  cp /tmp/llama.before "$FILE" ;;
sweep)
  (cd "$HERE" && env PYTHONPATH="$ROOT:/tmp/product" timeout -s TERM "${LIMIT:-540}" "${PYTHON:-python3}" -c 'from flows.cli import main; main()' run h200); echo "exit $?" ;;
profile)
  sweep run h200-profile; echo "exit $?"
  RUN=$(ls -d /tmp/e3/runs/h200-profile/*/ | tail -1)
  for ARM in base good; do
    env PYTHONPATH="$ROOT:/tmp/product" "${PYTHON:-python3}" "$HERE/trace_fixture.py" "$RUN"trials/b01-$ARM.a1/profiles/profile-inside-c8.jsonl.gz \
      "$OUT/sglang-0.5.12.post1-h200-$ARM.jsonl.gz" $([ $ARM = base ] || echo --drafting) > "$OUT/profile-$ARM.txt"
    cat "$OUT/profile-$ARM.txt"
  done ;;
drafters)
  "${PYTHON:-python3}" "$HERE/broken_drafters.py" /tmp/m/good /tmp/broken
  PYTHONPATH=/tmp/site HF_HUB_OFFLINE=1 timeout -s TERM "${LIMIT:-540}" "${PYTHON:-python3}" "$HERE/try_drafters.py" \
    --target /tmp/m/target --good /tmp/m/good --broken /tmp/broken --out "$OUT/tried" ${ONLY:+--only $ONLY} -- \
    --mem-fraction-static 0.3 --max-total-tokens 20000 --attention-backend triton --sampling-backend pytorch \
    --grammar-backend none --cuda-graph-max-bs 16 --disable-piecewise-cuda-graph; echo "exit $?"; exit ;;
short)
  sed -e 's/^name: h200/name: h200-short/' -e 's/^blocks: 3/blocks: 1/' -e '/^  weak:/,+1d' \
    -e 's/requests_per_slot: 8/requests_per_slot: 4/' -e 's/min_requests: 12/min_requests: 8/' \
    "$HERE/configs/sweeps/h200.yaml" > "$HERE/configs/sweeps/h200-short.yaml"
  (cd "$HERE" && env PYTHONPATH="$ROOT:/tmp/product" timeout -s TERM "${LIMIT:-540}" "${PYTHON:-python3}" -c 'from flows.cli import main; main()' run h200-short); echo "exit $?"
  rm "$HERE/configs/sweeps/h200-short.yaml" ;;
bench)
  (cd "$HERE" && env PYTHONPATH="$ROOT:/tmp/product" timeout -s TERM "${LIMIT:-540}" "${PYTHON:-python3}" -c 'from flows.cli import main; main()' run h200-bench); echo "exit $?" ;;
bench-missing)
  mv /tmp/site/datasets /tmp/datasets.away; trap 'mv /tmp/datasets.away /tmp/site/datasets' EXIT
  sweep run h200-bench-missing; echo "exit $?" ;;
x2-screen)
  target_x2; sweep screen h200-x2; echo "exit $?"; sweep plan h200-x2 | tail -40 ;;
x2)
  target_x2
  (cd "$HERE" && env PYTHONPATH="$ROOT:/tmp/product" timeout -s TERM "${LIMIT:-570}" "${PYTHON:-python3}" -c 'from flows.cli import main; main()' run h200-x2); echo "exit $?" ;;
x2-ranked)
  target_x2
  ls -d /tmp/e3/runs/h200-x2-ranked.screen >/dev/null 2>&1 || sweep screen h200-x2-ranked --factor nccl --no-start
  (cd "$HERE" && env PYTHONPATH="$ROOT:/tmp/product" timeout -s TERM "${LIMIT:-570}" "${PYTHON:-python3}" -c 'from flows.cli import main; main()' run h200-x2-ranked); echo "exit $?" ;;
x8)
  [ "$(nvidia-smi -L | wc -l)" -ge "$GPUS" ] || { echo "this machine has no $GPUS GPUs (GPUS=4 asks for four)"; exit 2; }
  mkdir -p "$X8"; S=$X8/$NAME
  if ! kill -0 "$(cat "$S.pid" 2>/dev/null)" 2>/dev/null && [ "$(cat "$S.exit" 2>/dev/null)" != 0 ]; then
    rm -f "$S.exit"; env X8="$X8" GPUS="$GPUS" setsid bash "$HERE/run.sh" x8-all >> "$S.log" 2>&1 < /dev/null & echo $! > "$S.pid"
  fi
  PID=$(cat "$S.pid"); END=$((SECONDS + ${LIMIT:-560}))
  while [ ! -f "$S.exit" ] && kill -0 "$PID" 2>/dev/null && [ $SECONDS -lt $END ]; do sleep 1; done
  tail -n 60 "$S.log"
  if [ -f "$S.exit" ]; then echo "exit $(cat "$S.exit")"
  elif kill -0 "$PID" 2>/dev/null; then echo "it goes on in the background (process group $PID); the same command again tells how far"
  else echo "it was ended from outside; the same command goes on with it"; fi ;;
x8-all)
  x8_all; echo $? > "$X8/$NAME.exit"; exit ;;
esac
keep
nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader
