#!/bin/sh
# Says where a file that was just written does not parse. Reads the call as JSON on stdin; 2 tells the agent, with the
# parser's words on stderr. A language without its parser on this machine is passed over.
set -u
here=$(dirname -- "$0")

call=$(cat && echo .) || exit 0
field() { printf '%s' "${call%.}" | LC_ALL=C awk -v "want=$1" -f "$here/json-field.awk"; }

file=$(field tool_input.file_path) || exit 0
case $file in
    /*) ;;
    *) file=$(field cwd)/$file ;;
esac
[ -f "$file" ] || exit 0

has() { command -v "$1" >/dev/null 2>&1; }
json() {
    if has jq; then jq empty "$file"
    elif has python3; then python3 -c 'import json, sys; json.load(open(sys.argv[1], encoding="utf-8"))' "$file"
    fi
}
# On stdin, so that the modules which the file names are left alone.
rust() { rustfmt --edition "$1" --emit stdout <"$file"; }

case $file in
    */tsconfig*.json | */.vscode/*.json) exit 0 ;;   # comments are allowed there
    *.json) says=$(json 2>&1) ;;
    *.rs) has rustfmt || exit 0; says=$({ rust 2021 2>/dev/null || rust 2024; } 2>&1 >/dev/null) ;;
    *.py) has python3 || exit 0; says=$(python3 -c 'import ast, sys; ast.parse(open(sys.argv[1], "rb").read(), sys.argv[1])' "$file" 2>&1) ;;
    *.js | *.mjs | *.cjs) has node || exit 0; says=$(node --check "$file" 2>&1) ;;
    *.go) has gofmt || exit 0; says=$(gofmt -e "$file" 2>&1 >/dev/null) ;;
    *.rb) has ruby || exit 0; says=$(ruby -c "$file" 2>&1 >/dev/null) ;;
    *.bash) has bash || exit 0; says=$(bash -n "$file" 2>&1) ;;
    *.sh) says=$(sh -n "$file" 2>&1) ;;
    *) exit 0 ;;
esac && exit 0

printf 'The file does not parse:\n%s\n' "$says" | head -n 20 >&2
exit 2
