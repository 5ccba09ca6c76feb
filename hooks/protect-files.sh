#!/bin/sh
# Refuses edits of files that are not to be edited by hand. Reads the call as JSON on stdin; 2 refuses, with the reason
# on stderr. What cannot be read is refused too. Needs nothing but POSIX tools.
set -u
LC_ALL=C
export LC_ALL
here=$(dirname -- "$0")

refuse() {
    printf '%s\n' "$1" >&2
    exit 2
}

call=$(cat && echo .) || refuse 'The call could not be read, so it was not made.'
field() { printf '%s' "${call%.}" | awk -v "want=$1" -f "$here/json-field.awk"; }

file=$(field tool_input.file_path || field tool_input.notebook_path) || refuse 'The call names no file, so it was not made.'
case $file in
    /*) ;;
    *) file=$(field cwd)/$file ;;
esac

# Where the file really is: links and `..` lead nowhere else. The folder need not exist yet.
name=${file##*/}
folder=$(cd -P -- "${file%/*}/" 2>/dev/null && pwd -P) || folder=${file%/*}
[ -L "$folder/$name" ] && refuse "\`$name\` is a link; edit the file it leads to by its own name."
path=$(printf '%s/%s' "$folder" "$name" | tr '[:upper:]' '[:lower:]')

case $path in
    */../* | */..) refuse "\`$file\` has \`..\` in it and its folder is not there; name it without." ;;
    */cargo.lock | */package-lock.json | */npm-shrinkwrap.json | */yarn.lock | */pnpm-lock.yaml | */bun.lock | \
        */poetry.lock | */uv.lock | */pipfile.lock | */gemfile.lock | */composer.lock | */go.sum | */flake.lock)
        refuse "\`$name\` is written by its package manager. Change the manifest beside it and let the tool write the lock file." ;;
    */.github/workflows/* | */.github/actions/* | */.gitlab-ci.yml | */.circleci/* | */azure-pipelines.yml | */jenkinsfile)
        refuse "\`$name\` belongs to continuous integration, which runs with secrets. Leave it as it is and say in your report what should change there." ;;
    */.env.example | */.env.sample | */.env.template) ;;
    */.env | */.env.* | *.pem | *.key | *.p12 | *.pfx | */id_rsa | */id_ed25519 | */.npmrc | */.netrc | */.pypirc)
        refuse "\`$name\` is a place for secrets. Leave it as it is and say in your report what is needed there." ;;
esac

# Generated code says so in its first lines.
if [ -f "$file" ]; then
    mark='@generated|(auto-?|automatically )generated|generated.*do not (edit|modify)|do not (edit|modify).*generated'
    says=$(head -n 5 -- "$file" | grep -i -E -e "$mark" | head -n 1 | cut -c 1-300)
    [ -n "$says" ] && refuse "\`$name\` is generated; it says: $says
Change what it is made from, then generate it anew."
fi
exit 0
