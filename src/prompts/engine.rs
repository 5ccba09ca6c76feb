//! Runs templates through Tera and leads its errors back to the text their author wrote.
use super::{
    MAX_OUTPUT_BYTES, MAX_TEMPLATE_BYTES, Scope, TemplateError,
    filters::{self, Callable},
    outline::{Call, Outline, Piece},
    reader,
    rewrite::{Mode, Rewritten},
};
use crate::source::nearest;
use serde_json::Value;
use std::{
    io::{self, Write},
    ops::Range,
    sync::LazyLock,
};
use tera::{ErrorKind, Tera};

static TERA: LazyLock<Tera> = LazyLock::new(|| {
    let mut tera = Tera::new();
    filters::register(&mut tera);
    tera
});

/// Renders a template as text.
pub fn render(text: &str, scope: &Scope) -> Result<String, TemplateError> {
    if is_plain(text) {
        return Ok(text.to_owned());
    }
    let outline = outline(text)?;
    run(text, &outline, scope, Mode::Text)
}

/// Renders a template to a value: one whole `{{ expr }}` keeps its type, anything else is text.
pub fn evaluate(text: &str, scope: &Scope) -> Result<Value, TemplateError> {
    if is_plain(text) {
        return Ok(Value::String(text.to_owned()));
    }
    let outline = outline(text)?;
    match whole(text, &outline) {
        Some(_) => typed(text, &outline, scope),
        None => run(text, &outline, scope, Mode::Text).map(Value::String),
    }
}

/// Renders every text in a value, however deep, to a value.
pub fn evaluate_all(value: &Value, scope: &Scope) -> Result<Value, TemplateError> {
    match value {
        Value::String(text) => evaluate(text, scope),
        Value::Array(values) => values.iter().map(|value| evaluate_all(value, scope)).collect(),
        Value::Object(fields) => {
            let one = |(name, value): (&String, &Value)| Ok((name.clone(), evaluate_all(value, scope)?));
            fields.iter().map(one).collect::<Result<_, _>>().map(Value::Object)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(value.clone()),
    }
}

/// Evaluates a condition, written as `expr` or `{{ expr }}`; it must give true or false.
pub fn condition(text: &str, scope: &Scope) -> Result<bool, TemplateError> {
    let condition = Condition::new(text);
    let outline = outline(&condition.text).map_err(|error| condition.place(error))?;
    let span = condition.require_whole(&outline)?;
    match typed(&condition.text, &outline, scope).map_err(|error| condition.place(error))? {
        Value::Bool(holds) => Ok(holds),
        other => {
            let kind = match other {
                Value::Null => "null",
                Value::Bool(_) => "a truth value",
                Value::Number(_) => "a number",
                Value::String(_) => "text",
                Value::Array(_) => "a list",
                Value::Object(_) => "a map",
            };
            let help = "compare it: `x == 0`, `x != \"\"`, `x | length > 0`, `x is defined`".to_owned();
            Err(TemplateError::new(format!("a condition must give true or false, this gives {kind}"), span, Some(help)))
        }
    }
}

/// Reads the structure of a template and checks the names of what it calls.
pub(super) fn outline(text: &str) -> Result<Outline, TemplateError> {
    let (outline, errors) = examine(text);
    errors.into_iter().next().map_or(Ok(outline), Err)
}

/// The same as far as it can be read, with everything that is wrong with it, in the order of the text.
pub(super) fn examine(text: &str) -> (Outline, Vec<TemplateError>) {
    if text.len() > MAX_TEMPLATE_BYTES {
        return (Outline::default(), vec![TemplateError::new(format!("the template is longer than {MAX_TEMPLATE_BYTES} bytes"), 0..0, None)]);
    }
    let (outline, mut errors) = reader::read(text);
    errors.extend(outline.calls.iter().filter_map(|call| check_call(call).err()));
    errors.sort_by_key(|error| error.span.start);
    (outline, errors)
}

fn check_call(call: &Call) -> Result<(), TemplateError> {
    let known = call.kind.known();
    match known.iter().find(|callable| callable.name == call.name) {
        Some(callable) => check_arguments(call, callable),
        None => Err(TemplateError::unknown(call.kind.word(), &call.name, call.span.clone(), known.iter().map(|callable| callable.name))),
    }
}

/// Tera passes over arguments that it does not know, and misses others only when it comes to them.
fn check_arguments(call: &Call, callable: &Callable) -> Result<(), TemplateError> {
    for (name, span) in &call.arguments {
        if !callable.arguments().any(|known| known == name) {
            let all: Vec<String> = callable.arguments().map(|known| format!("`{known}`")).collect();
            let help = match nearest(name, callable.arguments()) {
                Some(near) => format!("did you mean `{near}`?"),
                None if all.is_empty() => "it takes none".to_owned(),
                None => format!("it has {}", all.join(", ")),
            };
            return Err(TemplateError::new(format!("`{}` has no argument `{name}`", call.name), span.clone(), Some(help)));
        }
    }
    let missing = callable.needs.iter().find(|needed| !call.arguments.iter().any(|(name, _)| name == *needed));
    match missing {
        Some(missing) => {
            let help = callable.usage().map(|usage| format!("write `{usage}`"));
            Err(TemplateError::new(format!("`{}` needs the argument `{missing}`", call.name), call.span.clone(), help))
        }
        None => Ok(()),
    }
}

/// Lets Tera parse the template without running it.
pub(super) fn compile(text: &str, outline: &Outline) -> Result<(), TemplateError> {
    if is_plain(text) {
        return Ok(());
    }
    let rewritten = Rewritten::new(text, outline, Mode::Text);
    TERA.clone().add_raw_template("template", &rewritten.text).map_err(|error| explain(text, outline, &rewritten, &Scope::new(), &error))
}

/// Returns the place of the expression if the template is one whole `{{ expr }}`, white space around it aside.
pub(super) fn whole(text: &str, outline: &Outline) -> Option<Range<usize>> {
    let mut found = None;
    for piece in &outline.pieces {
        match piece {
            Piece::Literal(span) if text[span.clone()].trim().is_empty() => {}
            Piece::Output { span, .. } if found.is_none() => found = Some(span.clone()),
            Piece::Literal(_) | Piece::Output { .. } | Piece::Tag { .. } => return None,
        }
    }
    found
}

/// A condition made into one whole `{{ expr }}`.
pub(super) struct Condition {
    pub(super) text: String,
    /// How much was put before it.
    shift: usize,
    length: usize,
}

impl Condition {
    pub(super) fn new(text: &str) -> Condition {
        let bare = !text.trim_start().starts_with("{{");
        let (whole, shift) = if bare { (format!("{{{{ {text} }}}}"), 3) } else { (text.to_owned(), 0) };
        Condition { text: whole, shift, length: text.len() }
    }

    /// Leads a place back to the condition as it was written.
    pub(super) fn span(&self, span: Range<usize>) -> Range<usize> {
        let place = |at: usize| at.saturating_sub(self.shift).min(self.length);
        place(span.start)..place(span.end)
    }

    /// Leads an error back to the condition as it was written.
    pub(super) fn place(&self, error: TemplateError) -> TemplateError {
        TemplateError { span: self.span(error.span.clone()), ..error }
    }

    /// Returns where the expression stands, if that is all there is.
    pub(super) fn require_whole(&self, outline: &Outline) -> Result<Range<usize>, TemplateError> {
        let help = || Some("write `expr` or one whole `{{ expr }}`".to_owned());
        whole(&self.text, outline).map(|span| self.span(span)).ok_or_else(|| TemplateError::new("a condition must be one expression", 0..self.length, help()))
    }
}

/// Returns whether a text is no template: rendered, it is what it is.
pub fn is_plain(text: &str) -> bool {
    !text.bytes().zip(text.bytes().skip(1)).any(|(a, b)| a == b'{' && matches!(b, b'{' | b'%' | b'#'))
}

fn typed(text: &str, outline: &Outline, scope: &Scope) -> Result<Value, TemplateError> {
    let json = run(text, outline, scope, Mode::Json)?;
    serde_json::from_str(&json).map_err(|error| TemplateError::new(format!("the value is not JSON: {error}"), 0..text.len(), None))
}

fn run(text: &str, outline: &Outline, scope: &Scope, mode: Mode) -> Result<String, TemplateError> {
    let rewritten = Rewritten::new(text, outline, mode);
    let mut output = Capped(Vec::new());
    let result = if outline.loops.is_empty() {
        TERA.render_str_to(&rewritten.text, &scope.context, false, &mut output)
    } else {
        let mut tera = TERA.clone();
        filters::register_counter(&mut tera);
        tera.render_str_to(&rewritten.text, &scope.context, false, &mut output)
    };
    result.map_err(|error| explain(text, outline, &rewritten, scope, &error))?;
    String::from_utf8(output.0).map_err(|_| TemplateError::new("the result is not UTF-8", 0..text.len(), None))
}

/// A buffer that refuses to grow without end.
struct Capped(Vec<u8>);

impl Write for Capped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_OUTPUT_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Says in the terms of the template what Tera says of the rewritten text.
fn explain(text: &str, outline: &Outline, rewritten: &Rewritten, scope: &Scope, error: &tera::Error) -> TemplateError {
    match error.kind() {
        ErrorKind::SyntaxError(report) | ErrorKind::RenderingError(report) => {
            let number = report.message().strip_prefix(filters::UNDEFINED).and_then(|number| number.parse::<usize>().ok());
            if let Some(chain) = number.and_then(|number| outline.chains.get(number)) {
                return scope.explain(text, chain);
            }
            let span = clamp(text, rewritten.original(&report.span().range));
            TemplateError::new(fragment(report.message()), span, None)
        }
        ErrorKind::Io(_) => TemplateError::new(format!("the result is longer than {MAX_OUTPUT_BYTES} bytes"), 0..text.len(), None),
        other => TemplateError::new(fragment(&other.to_string()), 0..text.len(), None),
    }
}

/// Brings a place to character boundaries of the text.
fn clamp(text: &str, span: Range<usize>) -> Range<usize> {
    let start = text.floor_char_boundary(span.start);
    start..text.ceil_char_boundary(span.end).max(start)
}

/// Makes a sentence of Tera's into a lowercase fragment.
fn fragment(message: &str) -> String {
    let message = message.trim_end_matches('.');
    let mut chars = message.chars();
    match chars.next() {
        Some(first) if !chars.as_str().starts_with(char::is_uppercase) => first.to_lowercase().chain(chars).collect(),
        _ => message.to_owned(),
    }
}
