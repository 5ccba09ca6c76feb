# Prints the text at one path of a JSON object on stdin, as in `awk -v want=tool_input.file_path -f json-field.awk`.
# Exits with 1 where the text is not there, 2 where what is read is not JSON. Of a key that comes twice the last counts.
# Keys with a dot in them cannot be named. For POSIX awk, with LC_ALL=C.

{ text = text $0 "\n" }

END {
    found = 0
    value("")
    skip()
    if (text != "") broken()
    if (!found) exit 1
    printf "%s", answer
}

function broken() { exit 2 }

function skip() { sub(/^[ \t\r\n]+/, "", text) }

function take(length_,    taken) {
    taken = substr(text, 1, length_)
    text = substr(text, length_ + 1)
    return taken
}

# Reads one value; `path` is where it stands.
function value(path,    first, read) {
    skip()
    first = substr(text, 1, 1)
    if (first == "{") object(path)
    else if (first == "[") list(path)
    else if (first == "\"") {
        read = string()
        if (path == want) { found = 1; answer = plain(read) }
    } else if (match(text, /^(true|false|null|-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?)/)) {
        take(RLENGTH)
        if (path == want) found = 0
    } else broken()
}

function object(path,    key, more) {
    take(1); skip()
    if (path != "" && index(want ".", path ".") == 1) found = 0
    if (substr(text, 1, 1) == "}") { take(1); return }
    for (more = 1; more;) {
        skip()
        if (substr(text, 1, 1) != "\"") broken()
        key = plain(string())
        skip()
        if (take(1) != ":") broken()
        value(path == "" ? key : path "." key)
        more = goes_on("}")
    }
}

function list(path,    more) {
    take(1); skip()
    if (path == want) found = 0
    if (substr(text, 1, 1) == "]") { take(1); return }
    # What stands in a list has no path that can be asked for.
    for (more = 1; more;) { value("\n"); more = goes_on("]") }
}

function goes_on(end,    next_) {
    skip()
    next_ = take(1)
    if (next_ == ",") return 1
    if (next_ != end) broken()
    return 0
}

# Reads a string and returns what stands between its quotes, escapes untouched.
function string(    body) {
    if (!match(text, /^"([^"\\]|\\.)*"/)) broken()
    body = take(RLENGTH)
    return substr(body, 2, RLENGTH - 2)
}

# Undoes escapes.
function plain(body,    out, at, kind, code) {
    out = ""
    while ((at = index(body, "\\")) > 0) {
        out = out substr(body, 1, at - 1)
        kind = substr(body, at + 1, 1)
        body = substr(body, at + 2)
        if (kind != "u") { out = out simple(kind); continue }
        code = number(substr(body, 1, 4))
        body = substr(body, 5)
        if (code >= 55296 && code < 56320 && substr(body, 1, 2) == "\\u") {
            code = 65536 + (code - 55296) * 1024 + number(substr(body, 3, 4)) - 56320
            body = substr(body, 7)
        }
        out = out character(code)
    }
    return out body
}

function simple(kind) {
    if (kind == "n") return "\n"
    if (kind == "t") return "\t"
    if (kind == "r") return "\r"
    if (kind == "b") return "\b"
    if (kind == "f") return "\f"
    if (kind == "\"" || kind == "\\" || kind == "/") return kind
    broken()
}

# Reads four hexadecimal digits.
function number(digits,    code, at, digit) {
    if (length(digits) != 4) broken()
    code = 0
    for (at = 1; at <= 4; at++) {
        digit = index("0123456789abcdef", tolower(substr(digits, at, 1)))
        if (digit == 0) broken()
        code = code * 16 + digit - 1
    }
    return code
}

# Writes a character as UTF-8.
function character(code) {
    if (code == 0 || code > 1114111) broken()
    if (code < 128) return sprintf("%c", code)
    if (code < 2048) return sprintf("%c", 192 + int(code / 64)) tail(code)
    if (code < 65536) return sprintf("%c", 224 + int(code / 4096)) tail(int(code / 64)) tail(code)
    return sprintf("%c", 240 + int(code / 262144)) tail(int(code / 4096)) tail(int(code / 64)) tail(code)
}

function tail(bits) { return sprintf("%c", 128 + bits % 64) }
