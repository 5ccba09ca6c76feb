//! The language of templates as workflows use it, and what hostile values and templates get.
use super::*;
use serde_json::{Value, json};

fn scope() -> Scope {
    let Value::Object(values) = json!({
        "inputs": {"goal": "build it", "pattern": "old_api::", "max_agents": 4, "price": 1.5, "big": u64::MAX, "flag": true},
        "steps": {
            "plan": {"output": {"tasks": [{"id": "a", "scope": ["src/**"]}, {"id": "b", "needs": ["a"]}]}},
            "files": {"output": ["a.rs", "b.rs", "c.rs"]},
            "suite": {"exit_code": 0, "stdout": "", "output_tail": "red\n"},
            "look": {"results": [
                {"ok": true, "output": {"findings": [{"file": "x"}, {"file": "y"}]}},
                {"ok": false, "output": null},
                {"ok": true, "output": {"findings": [{"file": "z"}]}},
            ]},
        },
        "task": {"id": "b", "title": "T", "needs": ["a"]},
        "odd key": {"a b": 1},
        "loop": {"iteration": 2},
    }) else {
        unreachable!()
    };
    values.into()
}

fn text(template: &str) -> String {
    render(template, &scope()).unwrap_or_else(|error| panic!("{template}: {error:?}"))
}

fn value(template: &str) -> Value {
    evaluate(template, &scope()).unwrap_or_else(|error| panic!("{template}: {error:?}"))
}

fn refused(template: &str) -> TemplateError {
    render(template, &scope()).expect_err(template)
}

/// What is to be said of a command that can be rendered.
fn check_shell(text: &str) -> Result<Command, TemplateError> {
    let command = examine_shell(text);
    command.examined.errors.first().cloned().map_or(Ok(command), Err)
}

fn paths(template: &str) -> Vec<String> {
    check(template).unwrap_or_else(|error| panic!("{template}: {error:?}")).into_iter().filter(Reading::is_own).map(|reading| reading.path.join(".")).collect()
}

#[test]
fn a_whole_expression_keeps_its_type() {
    assert_eq!(value("{{ inputs.max_agents }}"), json!(4));
    assert!(value("{{ inputs.max_agents }}").is_u64());
    assert_eq!(value("{{ inputs.big }}"), json!(u64::MAX));
    assert_eq!(value("{{ inputs.price }}"), json!(1.5));
    assert_eq!(value(" {{ inputs.flag }}\n"), json!(true));
    assert_eq!(value("{{ steps.look.results[1].output }}"), Value::Null);
    assert_eq!(value("{{ steps.plan.output.tasks }}")[1]["needs"], json!(["a"]));
    assert_eq!(value("{{ inputs.max_agents }}!"), json!("4!"));
    assert_eq!(value("{{ inputs.max_agents }}{{ inputs.max_agents }}"), json!("44"));
    assert_eq!(value("plain"), json!("plain"));
    assert_eq!(value("{% if true %}{{ inputs.max_agents }}{% endif %}"), json!("4"));
}

#[test]
fn maps_keep_their_order() {
    let scope = Scope::new().with("x", json!({"zebra": 1, "apple": {"y": 2, "b": 3}, "mango": null}));
    assert_eq!(render("{{ x }}", &scope).unwrap(), r#"{"zebra":1,"apple":{"y":2,"b":3},"mango":null}"#);
    assert_eq!(evaluate("{{ x }}", &scope).unwrap().to_string(), r#"{"zebra":1,"apple":{"y":2,"b":3},"mango":null}"#);
    assert_eq!(render("{% for k, v in x %}{{ k }} {% endfor %}", &scope).unwrap(), "zebra apple mango ");
    let items = json!([{"k": "z", "n": 1}, {"k": "a", "n": 2}, {"k": "z", "n": 3}]);
    assert_eq!(render("{{ x | group_by(attribute='k') | keys }}", &Scope::new().with("x", items)).unwrap(), r#"["z","a"]"#);
}

#[test]
fn the_examples_language_works() {
    assert_eq!(value("{{ steps.files.output[1:] }}"), json!(["b.rs", "c.rs"]));
    assert_eq!(text("Migrate {{ steps.files.output | first }}."), "Migrate a.rs.");
    assert_eq!(value("{{ task.needs | default(value=[]) }}"), json!(["a"]));
    assert_eq!(value("{{ steps.plan.output.tasks[0].needs | default(value=[]) }}"), json!([]));
    assert_eq!(value("{{ [r.output.findings for r in steps.look.results if r.ok] | flatten }}"), json!([{"file": "x"}, {"file": "y"}, {"file": "z"}]));
    assert_eq!(text("{{ steps.look.results | json }}"), scope_json("/steps/look/results"));
    assert_eq!(text("git grep {{ inputs.pattern | sh }}"), "git grep 'old_api::'");
    assert!(condition("{{ steps.suite.exit_code == 0 }}", &scope()).unwrap());
    assert!(!condition("steps.suite.exit_code != 0", &scope()).unwrap());
    assert_eq!(text("{{ loop.iteration }}"), "2");
}

fn scope_json(pointer: &str) -> String {
    evaluate("{{ steps }}", &scope()).unwrap().pointer(&pointer.replace("/steps", "")).unwrap().to_string()
}

#[test]
fn readings_are_the_free_variables_with_their_places() {
    let template = "{{ steps.plan.output.tasks }} and {{ inputs['max_agents'] + loop.iteration }}";
    let readings = check(template).unwrap();
    assert_eq!(readings[0].path, ["steps", "plan", "output", "tasks"]);
    assert_eq!(&template[readings[0].span.clone()], "steps.plan.output.tasks");
    assert_eq!(readings[1].path, ["inputs", "max_agents"]);
    assert_eq!(readings[2].path, ["loop", "iteration"]);

    assert_eq!(paths("{{ [r.output.findings for r in steps.look.results if r.ok] | flatten }}"), ["steps.look.results"]);
    assert_eq!(paths("{% for k, v in steps.a %}{{ k }}{{ v.x }}{{ loop.index }}{{ other }}{% endfor %}{{ v }}"), ["steps.a", "other", "v"]);
    assert_eq!(paths("{% for x in xs %}{% else %}{{ x }}{% endfor %}"), ["xs", "x"]);
    assert_eq!(paths("{% set t = steps.a.output %}{{ t.x }}"), ["steps.a.output"]);
    assert_eq!(paths("{% for x in xs %}{% set t = 1 %}{% endfor %}{{ t }}"), ["xs", "t"]);
    assert_eq!(paths("{{ x[y.z].w }}"), ["x", "y.z"]);
    assert_eq!(paths("{{ x[0].w }}"), ["x.[].w"]);
    assert_eq!(paths("{{ x[-1].w }}{{ y[1:].w }}{{ z[-n].w }}{{ z[1 - 2].w }}"), ["x.[].w", "y.w", "z", "n", "z"]);
    assert_eq!(paths("{{ x?.y?['z'] | default(value=d.e) }}"), ["x.y.z", "d.e"]);
    assert_eq!(paths("{# {{ a }} #}{% raw %}{{ b }}{% endraw %}{{ 'c.d' }}{{ c }}"), ["c"]);
    assert_eq!(paths("{{ range(end=n) }}{{ {'k': a, ...b} }}{{ [c, ...d] }}{{ e if f else g }}"), ["n", "a", "b", "c", "d", "e", "f", "g"]);
    assert_eq!(paths("{{ \"it's }} a string\" }}{{ a }}"), ["a"]);
    assert_eq!(paths("no template"), Vec::<String>::new());
}

#[test]
fn names_that_a_template_binds_stand_for_what_they_are_bound_to() {
    let bound = |template: &str| -> Vec<String> {
        let readings = check(template).unwrap().into_iter().filter(|reading| !reading.is_own());
        readings
            .map(|reading| {
                reading.never.map_or_else(
                    || format!("{}+{}", reading.path[..reading.given].join("."), reading.path[reading.given..].join(".")),
                    |known| format!("no {} of {}", reading.path[0], known.join(",")),
                )
            })
            .collect()
    };
    assert_eq!(bound("{% for t in xs.a %}{{ t.b.c }}{% for u in t.d %}{{ u }}{% endfor %}{% endfor %}"), ["xs.a.[]+b.c", "xs.a.[]+d", "xs.a.[].d.[]+"]);
    assert_eq!(bound("{% set t = xs[0] %}{{ t.a[1].b }}"), ["xs.[]+a.[].b"]);
    assert_eq!(bound("{{ [t.a for t in xs if t.b] }}"), ["xs.[]+a", "xs.[]+b"]);
    assert_eq!(bound("{{ [[u.c for u in t.b] for t in xs] }}"), ["xs.[].b.[]+c", "xs.[]+b"]);
    assert_eq!(bound("{% set all = [{'n': t.id} for t in xs] %}{{ all[0].n.x }}{{ all[0].m }}"), ["xs.[]+id", "xs.[].id+x", "no m of n"]);
    assert_eq!(bound("{{ (xs | first)['a'] }}{{ xs | sort(attribute='a.b') }}{{ xs | get(key='k') }}"), ["xs.[]+a", "xs.[]+a.b", "xs+k"]);
    assert_eq!(bound("{% set t = a %}{% if c %}{% set t = b %}{% endif %}{{ t.x }}"), Vec::<String>::new());
    assert_eq!(
        bound("{% for k, v in m %}{{ k.x }}{{ v.y }}{% endfor %}{% for k, v in xs | group_by(attribute='a') %}{{ v[0].y }}{% endfor %}"),
        ["m.*+y", "xs.[]+a", "xs.[]+y"]
    );
    assert_eq!(bound("{{ [t.a for t in xs | unique | reverse] }}{{ [t.a for t in xs | flatten] }}"), ["xs.[]+a", "xs.[].[]+a"]);
    assert_eq!(gives("{{ xs[1:] }}"), Gives::Path(vec!["xs".to_owned()]));
    assert_eq!(gives("{{ xs }} "), Gives::Path(vec!["xs".to_owned()]));
    assert_eq!((gives("a {{ xs }}"), gives("{{ a or b }}")), (Gives::Unknown, Gives::Unknown));
}

#[test]
fn kinds_of_expressions_are_known_by_their_text() {
    let kind = |expression: &str| gives(&format!("{{{{ {expression} }}}}")).kind();
    for (expression, expected) in [
        ("1", Kind::Number),
        ("'x'", Kind::Text),
        ("null", Kind::Null),
        ("a + 1", Kind::Number),
        ("-a", Kind::Number),
        ("a ~ 1", Kind::Text),
        ("a ~ 1 == b", Kind::Flag),
        ("a == b ~ 1", Kind::Flag),
        ("not a", Kind::Flag),
        ("(a == 1) ~ 'x'", Kind::Text),
        ("not a ~ 'x'", Kind::Flag),
        ("a is defined", Kind::Flag),
        ("a not in b", Kind::Flag),
        ("a == 1 and b > 2 or not c", Kind::Flag),
        ("1 if a else 2", Kind::Number),
        ("xs | length", Kind::Number),
        ("xs | length > 0", Kind::Flag),
        ("a | trim", Kind::Text),
        ("a | lines", Kind::List),
        ("a | lines | first", Kind::Text),
        ("range(end=3)", Kind::List),
        ("[...a]", Kind::List),
        ("{'a': 1}", Kind::Map),
        ("{'a': 1}.a", Kind::Number),
    ] {
        let expression = if expression.ends_with(".a") { "({'a': 1})['a']" } else { expression };
        assert_eq!(kind(expression), Some(expected), "{expression}");
    }
    for expression in ["a", "a and b == 1", "a or 1", "1 if a else 'x'", "xs | first", "a | from_json", "none | default(value=1)"] {
        assert_eq!(kind(expression), None, "{expression}");
    }
}

#[test]
fn filters_that_take_null_are_known() {
    let value = |argument: &str| match argument {
        "key" | "attribute" | "from" | "to" | "pat" => "'a'",
        _ => "1",
    };
    for filter in filters::FILTERS {
        let arguments: Vec<String> = filter.needs.iter().map(|name| format!("{name}={}", value(name))).collect();
        let call = if arguments.is_empty() { filter.name.to_owned() } else { format!("{}({})", filter.name, arguments.join(", ")) };
        let taken = render(&format!("{{{{ x | {call} }}}}"), &Scope::new().with("x", Value::Null)).is_ok();
        // As a word of a command null is told apart.
        assert_eq!(taken || filter.name == "sh", filters::TAKE_NULL.contains(&filter.name), "{call}");
    }
}

#[test]
fn an_expression_that_cannot_be_read_hides_no_other() {
    let Examined { readings, errors, .. } = examine("{{ a.b | upcase }}{{ c. }}{{ d.e }}{{ f + }}{% for x in xs %}{{ x.y | nth }}{% endfor %}{{ g }}");
    assert_eq!(readings.iter().filter(|reading| reading.is_own()).map(|reading| reading.path.join(".")).collect::<Vec<_>>(), ["a.b", "d.e", "f", "xs", "g"]);
    let said: Vec<&str> = errors.iter().map(|error| error.message.as_str()).collect();
    assert_eq!(said.len(), 4, "{said:?}");
    assert!(said[0].contains("upcase") && said[3].contains("`nth` needs"), "{said:?}");
    assert_eq!(examine_shell("echo {{ a | shh }} {{ b }}").unquoted.len(), 1, "what may be misspelt is not told twice");
}

#[test]
fn words_of_a_command_are_marked_where_nothing_asks_for_them_before() {
    let words =
        |template: &str| check(template).unwrap().iter().filter(|reading| reading.goes == Goes::Word).map(|reading| reading.path.join(".")).collect::<Vec<_>>();
    assert_eq!(words("{{ a.b | sh }}{{ a.c | raw }}{{ a.d | default(value='') | sh }}{{ a.e | upper | sh }}"), ["a.b"]);
    assert_eq!(words("{% if a.b %}{{ a.b | sh }}{{ a.c | sh }}{% else %}{{ a.b.d | sh }}{% endif %}{{ a.b | sh }}"), ["a.c", "a.b"]);
    assert_eq!(words("{{ a.b | sh if a.b else 'x' | sh }}{{ 'x' | sh if a.c else a.c | sh }}"), Vec::<String>::new());
    assert_eq!(words("{% for r in a.rs %}{{ r.x | sh }}{% if r.ok %}{{ r.y | sh }}{% endif %}{% endfor %}"), ["a.rs.[].x"]);
}

#[test]
fn what_may_be_undefined_is_marked() {
    let optional = |template: &str| check(template).unwrap().into_iter().map(|reading| reading.optional).collect::<Vec<_>>();
    assert_eq!(optional("{{ a | default(value=b) }}"), [true, false]);
    assert_eq!(optional("{{ (a.b) | default(value=1) }}"), [true]);
    assert_eq!(optional("{{ 1 if a is defined and b.c is not undefined else d }}"), [true, true, false]);
    assert_eq!(optional("{{ not a is defined }}"), [true]);
    assert_eq!(optional("{{ a == b is defined }}"), [false, false]);
    assert_eq!(optional("{{ (a and b) | default(value=1) }}"), [false, false]);
    assert_eq!(optional("{{ a ~ b | default(value='') }}"), [false, true]);
    assert_eq!(optional("{{ a is string }}{{ b?.c }}"), [false, true]);
}

#[test]
fn conditions_have_readings_and_places_too() {
    let readings = check_condition("steps.suite.exit_code != 0").unwrap();
    assert_eq!(readings[0].path, ["steps", "suite", "exit_code"]);
    assert_eq!(readings[0].span, 0..21);
    let readings = check_condition("{{ steps.suite.exit_code != 0 }}").unwrap();
    assert_eq!(readings[0].span, 3..24);
    let error = check_condition("a = b").unwrap_err();
    assert_eq!(error.span, 2..3);
    assert!(check_condition("x {{ y }}").is_err());
    assert!(check_condition("{{ a }} == 1").is_err());
    assert!(check_condition("{{ a }}{{ b }}").is_err());
    assert!(check_condition("").is_err());
}

#[test]
fn a_condition_must_be_true_or_false() {
    let error = condition("steps.suite.exit_code", &scope()).unwrap_err();
    assert_eq!(error.message, "a condition must give true or false, this gives a number");
    assert!(condition("{{ inputs.goal }}", &scope()).unwrap_err().message.contains("gives text"));
    assert!(condition("null", &scope()).unwrap_err().message.contains("gives null"));
    assert!(condition("inputs.missing is defined", &scope()).is_ok_and(|holds| !holds));
    let error = condition("inputs.gaol == 'x'", &scope()).unwrap_err();
    assert_eq!((error.message.as_str(), error.help.as_deref(), error.span), ("`inputs.gaol` is not defined", Some("did you mean `goal`?"), 7..11));
}

#[test]
fn undefined_is_an_error_wherever_it_hides() {
    for template in [
        "{{ nothing }}",
        "{{ nothing.at.all }}",
        "{{ inputs.nothing }}",
        "{% if inputs.nothing %}{% endif %}",
        "{% if not inputs.nothing %}{% endif %}",
        "{{ inputs.nothing == 1 }}",
        "{{ inputs.nothing or 1 }}",
        "{{ 'x' ~ inputs.nothing }}",
        "{{ [inputs.nothing] }}",
        "{{ {'a': inputs.nothing} }}",
        "{{ 1 if inputs.nothing else 2 }}",
        "{{ 1 in [inputs.nothing] }}",
        "{{ inputs.goal | default(value=inputs.nothing) }}",
        "{% set x = inputs.nothing %}",
        "{% for x in inputs.nothing %}{% endfor %}",
        "{{ [r.nothing for r in steps.look.results] }}",
        "{{ steps.files.output[9] }}",
        "{{ (steps.files.output)[9] | length }}",
        "{{ steps.files.output[inputs.nothing] }}",
        "{{ inputs.nothing is string }}",
        "{{ inputs?.nothing }}",
        "{{ inputs.nothing | length }}",
        "{{ inputs.nothing | sh }}",
        "{{ inputs.nothing | json }}",
    ] {
        let error = refused(template);
        assert!(!error.message.contains("__"), "{template}: {}", error.message);
        assert!(template.get(error.span.clone()).is_some(), "{template}: {:?}", error.span);
        assert!(evaluate(template, &scope()).is_err(), "{template}");
    }
    // What is not reached is not read.
    assert_eq!(text("{% if inputs.flag %}yes{% else %}{{ inputs.nothing }}{% endif %}"), "yes");
    assert_eq!(text("{{ inputs.nothing if not inputs.flag else 'yes' }}"), "yes");
    assert_eq!(text("{{ inputs.a.b.c | default(value='d') }}"), "d");
    assert_eq!(text("{{ null | default(value='d') }} {{ '' | default(value='d') }} {{ '' | default(value='d', boolean=true) }}"), "d  d");
}

#[test]
fn undefined_names_the_path_and_what_was_meant() {
    let error = refused("{{ steps.plan.output.taks }}");
    assert_eq!(error.message, "`steps.plan.output.taks` is not defined");
    assert_eq!(error.help.as_deref(), Some("did you mean `tasks`?"));
    assert_eq!(error.span, 21..25);
    assert_eq!(refused("x {{ imputs.goal }}").help.as_deref(), Some("did you mean `inputs`?"));
    assert_eq!(refused("{{ steps.look.results[1].output.findings }}").message, "`steps.look.results[1].output.findings` is not defined");
    assert_eq!(refused("{{ inputs.goal.x }}").message, "`inputs.goal` is text, it has no `x`");
    assert_eq!(refused("{{ [r.outptu for r in steps.look.results] }}").message, "`r.outptu` is not defined");
    assert_eq!(refused("ä {{ 'ü' ~ steps.fils }}").span, 19..23);
}

#[test]
fn values_are_never_templates() {
    let hostile = "{{ inputs.secret }} {% include 'x' %} {# #}";
    let scope = Scope::new().with("x", json!(hostile)).with("y", json!([hostile]));
    assert_eq!(render("{{ x }}", &scope).unwrap(), hostile);
    assert_eq!(render("{% set z = x %}{{ z }}", &scope).unwrap(), hostile);
    assert_eq!(evaluate("{{ x }}", &scope).unwrap(), json!(hostile));
    assert_eq!(evaluate("{{ y }}", &scope).unwrap(), json!([hostile]));
    assert_eq!(render("{{ x }}", &Scope::new().with("x", json!("<b>&'\""))).unwrap(), "<b>&'\"");
}

#[test]
fn shell_words_are_one_word_whatever_is_in_them() {
    for hostile in ["", "a b", "it's", "$(rm -rf /)", "`id`", "-rf", "a\nb", "\"", "\\", "''", "'; id #", "FOO=bar", "2", "if", "~", "*", "ä€", "!!", "\\'"]
    {
        let command = render("cmd {{ x | sh }} end", &Scope::new().with("x", json!(hostile))).unwrap();
        assert_eq!(shell_words::split(&command).unwrap(), ["cmd", hostile, "end"], "{command}");
        assert!(command.starts_with("cmd '"));
    }
    let list = Scope::new().with("x", json!(["a b", "it's", 3, {"k": [1]}]));
    assert_eq!(render("{{ x | sh }}", &list).unwrap(), r#"'a b' 'it'\''s' '3' '{"k":[1]}'"#);
    assert!(render("{{ x | sh }}", &Scope::new().with("x", json!("a\0b"))).is_err());
    assert!(render("rm {{ x | sh }}", &Scope::new().with("x", Value::Null)).is_err());
    assert!(render("rm {{ x | sh }}", &Scope::new().with("x", json!(["a", null]))).is_err());
}

#[test]
fn a_command_lets_nothing_in_unquoted() {
    for good in [
        "git grep -lF {{ inputs.pattern | sh }} -- '*.rs'",
        "git diff {{ inputs.base | sh }}...HEAD",
        "test {{ steps.report.output.verdict | sh }} = approve",
        "{{ (a ~ b) | sh }}",
        "{{ a | sh if b else c | raw }}",
        "{{ (a | sh) }}",
        "{% for f in fs %}rm {{ f | sh }};{% endfor %}",
        "echo \"$(git log {{ a | sh }})\"",
        "echo 'it'{{ a | sh }}\"x\"",
        "echo 'a' # it's\ngrep {{ a | sh }}",
        "cat <<EOF\n'$x\nEOF\ngrep {{ a | sh }}",
        "cat <<-'EOF'\n\tx\n\tEOF\ngrep {{ a | sh }}",
        "cat <<< {{ a | sh }}",
        "echo $((1 << 2)) {{ a | sh }}",
        "echo \\' {{ a | sh }}",
        "cat <<EOF\n{{ a | raw }}\nEOF",
        "echo \"{{ a | raw }}\"",
        "echo a#b' c' {{ a | sh }}",
        "echo \"{% if a %}x{% else %}y{% endif %}\" {{ a | sh }}",
        "{% for f in fs %}cp 'x' {{ f | sh }}\n{% endfor %}",
    ] {
        let command = check_shell(good).unwrap_or_else(|error| panic!("{good}: {error}"));
        assert_eq!(command.unquoted, [], "{good}");
    }
    for bad in [
        "echo {{ a }}",
        "echo {{ a ~ b | sh }}",
        "echo {{ a | sh | upper }}",
        "echo {{ a | sh ~ b }}",
        "echo {{ a | sh if b else c }}",
        "echo {{ not a | sh }}",
        "echo {{ 'x' }}",
        "echo {{ [a | sh] }}",
        "{% filter replace(from=\"'\", to='') %}{{ a | sh }}{% endfilter %}",
        "echo '{{ a | sh }}'",
        "echo \"{{ a | sh }}\"",
        "echo \"it's {{ a | sh }}\"",
        "echo `x {{ a | sh }}`",
        "cat <<EOF\n{{ a | sh }}\nEOF",
        "cat <<'EOF'\nx {{ a | sh }}\nEOF",
        "cat <<-EOF; true\n\tx\n{{ a | sh }}",
        "true # {{ a | sh }}",
        "echo {% if a %}'{% else %}'{% endif %}{{ a | sh }}",
        "echo {% if a %}'{% endif %}{{ a | sh }}",
        "{% for f in fs %}\"{% endfor %}{{ a | sh }}",
        "{% if a %}cat <<EOF{% endif %}\n{{ a | sh }}",
        "echo \"$(x)'{{ a | sh }}'\"",
        "echo \\{{ a | sh }}",
        "echo \\<<<E\n{{ a | sh }}",
        "cat <<EOF\nx\\\nEOF\n{{ a | sh }}",
        "cat <<'E F'\nE\n{{ a | sh }}",
        "echo ${{ a | sh }}",
        "echo $'it\\'s' {{ a | sh }}",
        "echo $((1 + {{ a | sh }}))",
        "(( {{ a | sh }} > 1 ))",
        "(true)# {{ a | sh }}",
        "echo $(x)#'\n{{ a | sh }}",
    ] {
        let command = check_shell(bad).unwrap_or_else(|error| panic!("{bad}: {error}"));
        let error = command.unquoted.first().expect(bad);
        assert!(error.help.is_some(), "{bad}");
        assert!(bad.get(error.span.clone()).is_some_and(|text| !text.is_empty()), "{bad}");
    }
}

/// Shells have `${#name}`, other programs `{{.ID}}` and `{%s}`: code is never taken for a comment, and errors say what to do.
#[test]
fn what_only_looks_like_a_template_is_kept_or_explained() {
    let text = |template: &str| render(template, &scope()).unwrap_or_else(|error| panic!("{template}: {error}"));
    assert_eq!(text("${#V} {{ inputs.flag }} ${V%#} ${#V[@]}"), "${#V} true ${V%#} ${#V[@]}");
    assert_eq!(text("${#V}"), "${#V}");
    assert_eq!(text("{% if true %}${#V}{% endif %}{% raw %}${#a} {# b #}{% endraw %}{# c #}"), "${#V}${#a} {# b #}");
    assert_eq!(check_shell("n=${#V}; m=${V%#}").expect("a command").comments, []);
    let comments = check_shell("echo {# a #} b {# c #} {{ x | sh }}").expect("a command").comments;
    assert_eq!(comments.iter().map(|error| error.span.clone()).collect::<Vec<_>>(), [5..12, 15..22]);
    assert!(comments.iter().all(|error| error.help.as_ref().is_some_and(|help| help.contains("{% raw %}"))));
    for foreign in ["docker ps --format '{{.ID}}'", "{{json .}}", "{{ .ID }}", "awk '{%s}'", "printf {%-9s}", "echo {# x", "{{}}"] {
        let error = check_shell(foreign).expect_err(foreign);
        assert!(error.help.as_ref().is_some_and(|help| help.contains("{% raw %}")), "{foreign}: {error:?}");
    }
    assert_eq!(check("{{ a b }}").expect_err("two words").help, None);
}

#[test]
fn filters_do_what_they_say() {
    let scope = Scope::new().with("t", json!("a\nb\r\n\nc\n\n")).with("j", json!("{\"a\": [1, 2.5]}")).with("n", json!([[1, [2]], 3, []]));
    let value = |template: &str| evaluate(template, &scope).unwrap_or_else(|error| panic!("{template}: {error}"));
    assert_eq!(value("{{ t | lines }}"), json!(["a", "b", "", "c"]));
    assert_eq!(value("{{ '' | lines }}"), json!([]));
    assert_eq!(value("{{ '\\n\\n' | lines }}"), json!([]));
    assert_eq!(value("{{ j | from_json }}"), json!({"a": [1, 2.5]}));
    assert_eq!(value("{{ (j | from_json)['a'][0] | default(value=0) }}"), json!(1));
    assert_eq!(value("{{ n | flatten }}"), json!([1, [2], 3]));
    assert_eq!(value("{{ n | json }}"), json!("[[1,[2]],3,[]]"));
    assert_eq!(value("{{ {'a': 1} | json(pretty=true) }}"), json!("{\n  \"a\": 1\n}"));
    assert_eq!(value("{{ 'aXbX' | replace(from='X', to='-') }}"), json!("a-b-"));
    assert!(render("{{ 'nope' | from_json }}", &scope).is_err());
    assert!(render("{{ '1 2' | from_json }}", &scope).is_err());
    let long = Scope::new().with("x", json!(format!("BEGIN{}END", "ä".repeat(10_000)))).with("s", json!("short"));
    let cut = render("{{ x | truncate_tokens(max=30) }}", &long).unwrap();
    assert!(cut.starts_with("BEGINää") && cut.ends_with("äEND") && cut.contains("bytes cut") && cut.chars().count() < 100, "{cut}");
    assert_eq!(render("{{ s | truncate_tokens(max=30) }}", &long).unwrap(), "short");
    assert!(render("{{ x | truncate_tokens(max=0) }}", &long).unwrap().starts_with("\n[… 20008 bytes cut"));
}

#[test]
fn every_name_that_is_accepted_exists() {
    let all = [(filters::FILTERS, "x | "), (filters::TESTS, "x is "), (filters::FUNCTIONS, "")];
    for (callable, before) in all.into_iter().flat_map(|(all, before)| all.iter().map(move |callable| (callable, before))) {
        let named = |names: &[&str]| names.iter().map(|name| format!("{name}=1")).collect::<Vec<_>>().join(", ");
        let whole = named(&callable.arguments().collect::<Vec<_>>());
        for arguments in [named(callable.needs), whole] {
            let template = format!("{{{{ {before}{}({arguments}) }}}}", callable.name);
            check(&template).unwrap_or_else(|error| panic!("{template}: {error}"));
        }
    }
}

/// What Tera would pass over, or find missing only in the run, is known before.
#[test]
fn arguments_are_known_by_their_names() {
    for (template, message, help) in [
        ("{{ a | join(separator=',') }}", "`join` has no argument `separator`", "it has `sep`"),
        ("{{ a | round(digits=2) }}", "`round` has no argument `digits`", "it has `precision`, `method`"),
        ("{{ a | truncate(lenght=2) }}", "`truncate` has no argument `lenght`", "did you mean `length`?"),
        ("{{ a | upper(x=1) }}", "`upper` has no argument `x`", "it takes none"),
        ("{{ a | replace(from='x') }}", "`replace` needs the argument `to`", "write `replace(from=…, to=…)`"),
        ("{{ a | nth }}", "`nth` needs the argument `n`", "write `nth(n=…)`"),
        ("{{ a is containing(text='x') }}", "`containing` has no argument `text`", "it has `pat`"),
        ("{{ a is divisible_by }}", "`divisible_by` needs the argument `divisor`", "write `divisible_by(divisor=…)`"),
        ("{{ range(start=1) }}", "`range` needs the argument `end`", "write `range(end=…)`"),
        ("{% filter indent(widht=2) %}x{% endfilter %}", "`indent` has no argument `widht`", "did you mean `width`?"),
        ("{{ a | join(',') }}", "arguments have names", "write `join(sep=…)`"),
        ("{{ a | split(',') }}", "arguments have names", "write `split(pat=…)`"),
        ("{{ a | default([]) }}", "arguments have names", "write `default(value=…)`"),
        ("{{ a | upper(1) }}", "arguments have names", "`upper` takes none: leave the parentheses out"),
    ] {
        let error = check(template).unwrap_err();
        assert_eq!((error.message.as_str(), error.help.as_deref()), (message, Some(help)), "{template}");
    }
}

/// What the help says to write is taken, and means all of the expression.
#[test]
fn the_help_for_an_unquoted_value_does_not_lead_in_a_circle() {
    for (template, mended) in [
        ("echo {{ n + 1 | sh }}", "{{ (n + 1) | sh }}"),
        ("echo {{ n + 1 }}", "{{ (n + 1) | sh }}"),
        ("echo {{ a ~ b | raw }}", "{{ (a ~ b) | sh }}"),
        ("echo {{ a if b else c | sh }}", "{{ (a if b else c) | sh }}"),
        ("echo {{ not a }}", "{{ (not a) | sh }}"),
        ("echo {{ (a + b) }}", "{{ (a + b) | sh }}"),
        ("echo {{ a.b | upper }}", "{{ a.b | upper | sh }}"),
    ] {
        let help = check_shell(template).unwrap().unquoted.remove(0).help.unwrap();
        assert!(help.starts_with(&format!("write `{mended}`")), "{template}: {help}");
        assert_eq!(check_shell(&format!("echo {mended}")).unwrap().unquoted, [], "{mended}");
    }
    let scope = Scope::new().with("n", json!(2));
    assert_eq!(render("{{ (n + 1) | sh }}", &scope).unwrap(), "'3'");
}

#[test]
fn what_does_not_parse_is_refused_with_a_place_and_help() {
    let cases = [
        ("{{ a | sj }}", "unknown filter `sj`", Some("did you mean `sh`?")),
        ("{{ a | defualt(value=1) }}", "unknown filter `defualt`", Some("did you mean `default`?")),
        ("{{ a is definde }}", "unknown test `definde`", Some("did you mean `defined`?")),
        ("{{ rnage(end=1) }}", "unknown function `rnage`", Some("did you mean `range`?")),
        ("{{ a | default([]) }}", "arguments have names", Some("write `default(value=…)`")),
        ("{{ a", "expected `}}`, found the end of the text", Some("close it with `}}`")),
        ("{{ a b }}", "expected an operator or `}}`, found `b`", None),
        ("{{ }}", "expected a value, found the end of the expression", None),
        ("{{ 'a }}", "this string is never closed", Some("add `'`")),
        ("{{ a ? b }}", "`?` is not part of an expression", None),
        ("{% if a %}", "`{% if %}` is never closed", Some("add `{% endif %}`")),
        ("{% endfor %}", "no block is open here", None),
        ("{% if a %}{% endfor %}{% endif %}", "this does not belong to the open `{% if %}`", Some("close it first with `{% endif %}`")),
        ("{% fro x in y %}", "unknown tag `fro`", Some("did you mean `for`?")),
        ("{% include 'a' %}", "`include` is not available here", Some("a template is one self-contained text: use `if`, `for`, `set` and filters")),
        ("{# a", "this comment is never closed", Some("add `#}`; what only looks like a template goes between `{% raw %}` and `{% endraw %}`")),
        ("{#}", "this comment is never closed", Some("add `#}`; what only looks like a template goes between `{% raw %}` and `{% endraw %}`")),
        ("{% raw %}{{", "`{% raw %}` is never closed", Some("add `{% endraw %}`")),
        ("{{ __tera_context }}", "`__tera_context`: names that begin with two underscores are reserved", None),
        ("{{ a | __known(at=0) }}", "unknown filter `__known`", None),
        ("{{ <x /> }}", "expected a value, found `<`", Some("what only looks like a template goes between `{% raw %}` and `{% endraw %}`")),
        ("{{ not not a }}", "`not` cannot follow `not`", None),
        ("{{ a. }}", "expected a name after `.`, found the end of the expression", None),
    ];
    for (template, message, help) in cases {
        let error = check(template).expect_err(template);
        assert_eq!((error.message.as_str(), error.help.as_deref()), (message, help), "{template}");
        assert!(template.get(error.span.clone()).is_some(), "{template}");
    }
    // Tera's own findings come with the place in the template, not in what Tera got.
    let error = check("abc {{ a | default(value=1) }} {{ - - b }} {{ c.d }}").unwrap_err();
    assert!(!error.message.contains("__"), "{error}");
    let error = render("{{ inputs.goal }} {{ inputs.goal + 1 }}", &scope()).unwrap_err();
    assert!(error.span.start >= 21 && error.span.end <= 36, "{error:?}");
}

#[test]
fn hostile_templates_end() {
    let deep = format!("{{{{ {}1{} }}}}", "(".repeat(100_000), ")".repeat(100_000));
    assert_eq!(check(&deep).unwrap_err().message, "the expression nests too deep");
    assert!(check(&format!("{{{{ a{} }}}}", "[a".repeat(100_000))).is_err());
    assert!(check(&format!("{{{{ {}a }}}}", "-".repeat(100_000))).is_err());
    assert!(check(&"{% if a %}".repeat(1000)).is_err());
    assert!(check(&"x".repeat(MAX_TEMPLATE_BYTES + 1)).unwrap_err().message.contains("longer than"));
    assert!(check(&"{{ a }}".repeat(10_001)).unwrap_err().message.contains("too many variables"));
    let loops = "{% for a in range(end=50000) %}{% for b in range(end=50000) %}{% for c in range(end=50000) %}{% endfor %}{% endfor %}{% endfor %}";
    assert_eq!(refused(loops).message, "the loops of this template run over too many items");
    assert!(refused("{{ [[0 for b in range(end=50000)] for a in range(end=50000)] }}").message.contains("too many items"));
    let grown = Scope::new().with("x", json!("a".repeat(1_000_000)));
    assert!(render("{{ x | replace(from='a', to=x) }}", &grown).unwrap_err().message.contains("longer than"));
    assert!(render(&"{{ x }}".repeat(100), &grown).unwrap_err().message.contains("longer than"));
}

#[test]
fn odd_arguments_are_errors_and_no_panics() {
    for template in [
        "{{ 9223372036854775807 + 1 }}",
        "{{ 99999999999999999999 }}",
        "{{ 1 // 0 }}",
        "{{ 1 % 0 }}",
        "{{ 2 ** 100000 }}",
        "{{ '1' | int(base=99) }}",
        "{{ '1' | int(base=0) }}",
        "{{ 'ä' | truncate(length=0) }}",
        "{{ [1] | nth(n=-1) }}",
        "{{ [1, 'a'] | sort }}",
        "{{ 'abc'[5:1:-1] }}",
        "{{ 'abc'[::0] }}",
        "{{ range(end=10, step_by=0) | json }}",
        "{{ range(end=1000000) | length }}",
        "{{ 'a' | truncate_tokens(max=-1) }}",
        "{{ 'a' | replace(from='', to='b') }}",
        "{{ [1, 2] | join(sep=1) }}",
        "{{ 1.0 | round(precision=400) }}",
        "{{ throw(message='no') }}",
    ] {
        let _ = render(template, &scope());
        let _ = evaluate(template, &scope());
    }
    assert_eq!(refused("x {{ throw(message='no luck') }}").message, "no luck");
}

#[test]
fn white_space_control_survives_the_rewriting() {
    assert_eq!(text("a {{- inputs.goal -}} b"), "abuild itb");
    assert_eq!(text("{% for x in steps.files.output -%}\n  {{ x }}\n{%- endfor %}"), "a.rsb.rsc.rs");
    assert_eq!(text("{% raw %} {{ x }} {% endraw %}"), " {{ x }} ");
    assert_eq!(text("{{ -inputs.max_agents | abs }} {{ -1 | abs }}"), "4 1");
    assert_eq!(text("{% if inputs.max_agents > 3 and 'a.rs' in steps.files.output %}y{% endif %}"), "y");
    assert_eq!(text("{{ {\"a\": 1}[\"a\"] }}"), "1");
}

#[test]
fn errors_carry_spans_for_any_cut_of_a_template() {
    let template =
        "ä{{ a.b['c'][0:1] | default(value=[1, {'x': y}]) }}{% for k, v in [z for z in w if z is defined] %}{{ k ~ v }}{% else %}{# c #}{% endfor %}";
    for end in (0..=template.len()).filter(|end| template.is_char_boundary(*end)) {
        let cut = &template[..end];
        if let Err(error) = check_shell(cut) {
            assert!(cut.get(error.span.clone()).is_some(), "{cut}: {error:?}");
        }
        let _ = render(cut, &scope());
        let _ = condition(cut, &scope());
    }
}

#[test]
fn everything_that_a_template_may_call_is_in_the_reference() {
    let page = include_str!("../../docs/language.md");
    let called = || filters::FILTERS.iter().chain(filters::TESTS).chain(filters::FUNCTIONS);
    let is_missing = |name: &&str| !page.contains(&format!("`{name}`")) && !page.contains(&format!("`{name}("));
    let missing: Vec<_> = called().map(|callable| callable.name).filter(is_missing).collect();
    assert_eq!(missing, Vec::<&str>::new(), "docs/language.md says nothing of these");
    let page = include_str!("../../docs/values.md");
    for callable in called().filter(|callable| callable.usage().is_some()) {
        let row =
            page.lines().find(|line| line.starts_with('|') && line.split('|').nth(1).is_some_and(|names| names.contains(&format!("`{}`", callable.name))));
        let row = row.unwrap_or_else(|| panic!("docs/values.md says nothing of the arguments of `{}`", callable.name));
        let missing: Vec<_> = callable.arguments().filter(|name| !row.contains(&format!("`{name}`"))).collect();
        assert_eq!(missing, Vec::<&str>::new(), "docs/values.md: {row}");
    }
}
