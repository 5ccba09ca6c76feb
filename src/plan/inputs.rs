//! The inputs of a run: what was given, held against what is declared.
use super::{
    Plan,
    findings::{Findings, suggestion},
    schemas, unsound,
};
use crate::{
    source::codes,
    workflow::{Input, InputKind, Workflow},
};
use serde_json::{Map, Value};

/// Checks that every input's schema is one, and that its default fits.
pub(super) fn check_declared(workflow: &Workflow, findings: &mut Findings<'_>) {
    let mut flaws = Vec::new();
    for (name, input) in workflow.inputs.iter().filter(|(name, _)| !workflow.flaws.of_entry("inputs", name)) {
        if let Err(why) = schemas::check_work(&input.schema) {
            findings.report(findings.error(codes::BAD_SCHEMA, name.span, format!("the schema of the input `{}` {why}", name.value)));
            continue;
        }
        let own = unsound::flaws(&input.schema, &["inputs", name.as_str()], name.span);
        if !own.is_empty() {
            flaws.extend(own);
            continue;
        }
        match jsonschema::validator_for(&input.schema) {
            Err(error) => findings.report(findings.error(codes::BAD_SCHEMA, name.span, format!("the input `{}` is not declared soundly: {error}", name.value))),
            Ok(validator) => {
                if let Some(default) = &input.default
                    && let Err(error) = validator.validate(&default.value)
                {
                    findings.report(findings.error(codes::BAD_DEFAULT, default.span, format!("the default of `{}` does not fit: {error}", name.value)));
                }
            }
        }
        if let (true, Some(default)) = (input.required, &input.default) {
            let error = findings.error(codes::BAD_DEFAULT, default.span, format!("`{}` is required, so that its default is never used", name.value));
            findings.report(error.help("take `required` or `default` out"));
        }
    }
    unsound::report(flaws, findings);
}

impl Plan {
    /// Holds what was given against the declared inputs, and adds defaults. The result is in the order of the file.
    ///
    /// # Errors
    /// A sentence for each input that is unknown, missing or does not fit.
    pub fn check_inputs(&self, given: &Map<String, Value>) -> Result<Map<String, Value>, Vec<String>> {
        let unknown = given.keys().filter(|name| self.input(name).is_none()).map(|name| self.unknown(name));
        let problems: Vec<String> = unknown.chain(self.misfits(given, |_| true)).collect();
        if !problems.is_empty() {
            return Err(problems);
        }
        let value = |name: &String, input: &Input| given.get(name).or(input.default.as_deref()).map_or(Value::Null, |value| as_declared(input, value));
        Ok(self.inputs.iter().map(|(name, input)| (name.clone(), value(name, input))).collect())
    }

    /// Returns a sentence for each of those declared inputs that are `judged` and do not fit, or are missing where they must be given.
    pub fn misfits(&self, given: &Map<String, Value>, judged: impl Fn(&str) -> bool) -> Vec<String> {
        let mut problems = Vec::new();
        for (name, input) in self.inputs.iter().filter(|(name, _)| judged(name)) {
            match given.get(name).or(input.default.as_deref()) {
                Some(value) => problems.extend(misfits(name, input, value)),
                None if input.required => problems.push(format!("the input `{name}` must be given{}", what_for(input))),
                None => {}
            }
        }
        problems
    }

    /// Reads the text of `--input name=text` as the declared type: text as it stands, lists and maps as JSON.
    ///
    /// # Errors
    /// A sentence that says what is expected.
    pub fn parse_input(&self, name: &str, text: &str) -> Result<Value, String> {
        let input = self.input(name).ok_or_else(|| self.unknown(name))?;
        let expected = |what: &str| format!("the input `{name}` must be {what}, not `{text}`");
        let json = || serde_json::from_str::<Value>(text).ok();
        match input.kind.value {
            InputKind::String => Ok(Value::String(text.to_owned())),
            InputKind::Integer => json().as_ref().and_then(whole).ok_or_else(|| expected("a whole number")),
            InputKind::Number => json().filter(Value::is_number).ok_or_else(|| expected("a number")),
            InputKind::Boolean => json().filter(Value::is_boolean).ok_or_else(|| expected("`true` or `false`")),
            InputKind::Array => json().filter(Value::is_array).ok_or_else(|| expected("a list in JSON, as in `[\"a\", \"b\"]`")),
            InputKind::Object => json().filter(Value::is_object).ok_or_else(|| expected("a map in JSON, as in `{\"a\": 1}`")),
        }
    }

    fn input(&self, name: &str) -> Option<&Input> {
        self.inputs.iter().find(|(known, _)| known == name).map(|(_, input)| input)
    }

    fn unknown(&self, name: &str) -> String {
        match suggestion(name, self.inputs.iter().map(|(name, _)| name.as_str()), "inputs") {
            Some(help) => format!("there is no input `{name}`: {help}"),
            None => format!("there is no input `{name}`: this workflow takes none"),
        }
    }
}

/// Returns a value as its declaration has it: a whole number without a point, however it was written.
fn as_declared(input: &Input, value: &Value) -> Value {
    match input.kind.value {
        InputKind::Integer => whole(value).unwrap_or_else(|| value.clone()),
        InputKind::String | InputKind::Number | InputKind::Boolean | InputKind::Array | InputKind::Object => value.clone(),
    }
}

/// Reads a whole number. As JSON Schema has it, nothing behind the point counts as that: `3.0` is 3.
fn whole(value: &Value) -> Option<Value> {
    /// From here on not every whole number has a floating-point number of its own.
    const EXACT: f64 = 9e15;
    if value.is_i64() || value.is_u64() {
        return Some(value.clone());
    }
    #[expect(clippy::cast_possible_truncation, reason = "only whole numbers that fit go through the cast")]
    value.as_f64().filter(|number| number.fract() == 0.0 && number.abs() < EXACT).map(|number| Value::from(number as i64))
}

fn misfits(name: &str, input: &Input, value: &Value) -> Option<String> {
    schemas::fits(&input.schema, value).err().map(|why| format!("the input `{name}` does not fit: {why}"))
}

fn what_for(input: &Input) -> String {
    input.description.as_ref().map(|what| format!(": {what}")).unwrap_or_default()
}
