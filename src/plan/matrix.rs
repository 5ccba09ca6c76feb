//! The combinations of a matrix: which there are, and what each goes by.
use super::findings::Findings;
use crate::{
    prompts::{self, Scope},
    source::codes,
    workflow::{Matrix, Step},
};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// The most combinations that one matrix may have.
pub const MAX_COMBINATIONS: usize = 10_000;

/// One combination of a matrix.
#[derive(Debug, Clone, PartialEq)]
pub struct Combination {
    /// What it goes by: its values joined by commas; distinct among the combinations of one matrix.
    pub key: String,
    /// The value of each axis, in the order of the file.
    pub values: Map<String, Value>,
}

/// A matrix that cannot be multiplied out. Fits after "failed to".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MatrixError {
    /// An axis without values.
    #[error("combine the axes: `{0}` has no values")]
    Empty(String),
    /// A value that stands twice on one axis.
    #[error("combine the axes: {value} stands twice on `{axis}`")]
    Twice {
        /// The axis.
        axis: String,
        /// The value, as JSON.
        value: String,
    },
    /// More than [`MAX_COMBINATIONS`].
    #[error("combine the axes: they have more than {MAX_COMBINATIONS} combinations")]
    TooMany,
}

/// Returns every combination of some axes in the order of the file, the last axis turning fastest, less those that an
/// exclusion matches.
///
/// # Errors
/// Where an axis is empty or holds a value twice, or there are too many combinations.
pub fn combinations(axes: &[(String, Vec<Value>)], exclude: &[Value]) -> Result<Vec<Combination>, MatrixError> {
    let mut all = vec![(Vec::new(), Map::new())];
    for (axis, values) in axes {
        let mut seen = BTreeSet::new();
        if let Some(twice) = values.iter().map(Value::to_string).find(|value| !seen.insert(value.clone())) {
            return Err(MatrixError::Twice { axis: axis.clone(), value: twice });
        }
        if values.is_empty() {
            return Err(MatrixError::Empty(axis.clone()));
        }
        if all.len().saturating_mul(values.len()) > MAX_COMBINATIONS {
            return Err(MatrixError::TooMany);
        }
        all = all.into_iter().flat_map(|(names, map)| values.iter().enumerate().map(move |(at, value)| with(&names, &map, axis, (at, value)))).collect();
    }
    let mut taken = BTreeSet::new();
    let kept = all.into_iter().filter(|(_, values)| !exclude.iter().any(|excluded| matches(values, excluded)));
    Ok(kept.map(|(names, values)| Combination { key: free(&names.join(","), &mut taken), values }).collect())
}

fn with(names: &[String], map: &Map<String, Value>, axis: &str, (at, value): (usize, &Value)) -> (Vec<String>, Map<String, Value>) {
    let name = match value {
        Value::String(text) => text.clone(),
        Value::Number(_) | Value::Bool(_) | Value::Null => value.to_string(),
        Value::Array(_) | Value::Object(_) => at.to_string(),
    };
    let (mut names, mut map) = (names.to_vec(), map.clone());
    names.push(name);
    map.insert(axis.to_owned(), value.clone());
    (names, map)
}

/// Returns a key that nothing has yet: this one, or with a number behind it.
fn free(key: &str, taken: &mut BTreeSet<String>) -> String {
    let found = (1..=taken.len() + 1).map(|number| if number == 1 { key.to_owned() } else { format!("{key}~{number}") }).find(|key| !taken.contains(key));
    let found = found.unwrap_or_default();
    taken.insert(found.clone());
    found
}

/// Returns whether a combination has all the values of an exclusion.
fn matches(values: &Map<String, Value>, excluded: &Value) -> bool {
    excluded.as_object().is_some_and(|excluded| excluded.iter().all(|(axis, value)| values.get(axis) == Some(value)))
}

impl Matrix {
    /// Returns the axes, where all of them are literal lists.
    pub(super) fn literal(&self) -> Option<Vec<(String, Vec<Value>)>> {
        self.axes.iter().map(|(name, values)| Some((name.value.clone(), values.value.as_array()?.clone()))).collect()
    }

    /// Returns whether an exclusion is known only in the run.
    fn has_templates(&self) -> bool {
        self.exclude.iter().any(|excluded| excluded.value.to_string().contains("{{"))
    }

    /// Returns its combinations, where they are known before the run.
    pub(super) fn known(&self) -> Option<Vec<Combination>> {
        if self.has_templates() {
            return None;
        }
        let exclude: Vec<Value> = self.exclude.iter().map(|excluded| excluded.value.clone()).collect();
        combinations(&self.literal()?, &exclude).ok()
    }
}

/// Returns what a template gives for each combination of its step, where it reads nothing else and these are known.
pub(super) fn rendered(text: &str, step: &Step) -> Option<BTreeSet<String>> {
    let readings = prompts::check(text).ok()?;
    if !readings.iter().all(|reading| reading.path.first().is_some_and(|root| root == "matrix")) {
        return None;
    }
    let known = step.matrix.as_ref()?.known()?;
    known.into_iter().map(|combination| prompts::render(text, &Scope::new().with("matrix", Value::Object(combination.values))).ok()).collect()
}

/// Checks what is written of a matrix.
pub(super) fn check(step: &Step, matrix: &Matrix, findings: &mut Findings<'_>) {
    let id = &step.id;
    for (axis, values) in &matrix.axes {
        let Value::Array(list) = &values.value else { continue };
        let mut seen = BTreeSet::new();
        if let Some(twice) = list.iter().map(Value::to_string).find(|value| !seen.insert(value.clone())) {
            findings.report(findings.error(codes::MATRIX, values.span, format!("{twice} stands twice on the axis `{}`", axis.value)));
        }
    }
    let mut sound = true;
    for excluded in &matrix.exclude {
        for axis in excluded.value.as_object().into_iter().flat_map(Map::keys) {
            let known = matrix.axes.iter().map(|(name, _)| name.as_str());
            if !known.clone().any(|name| name == axis) {
                sound = false;
                let error = findings.error(codes::MATRIX, excluded.span, format!("the matrix has no axis `{axis}`"));
                findings.report(error.suggest(axis, known, "axes"));
            }
        }
    }
    let Some(axes) = matrix.literal().filter(|_| sound && !matrix.has_templates()) else { return };
    match combinations(&axes, &[]) {
        Err(MatrixError::TooMany) => {
            findings.report(findings.error(codes::MATRIX, id.span, format!("the matrix of `{}` has more than {MAX_COMBINATIONS} combinations", id.value)));
        }
        Err(MatrixError::Empty(_) | MatrixError::Twice { .. }) => {}
        Ok(all) => {
            for excluded in &matrix.exclude {
                if !all.iter().any(|combination| matches(&combination.values, &excluded.value)) {
                    findings.report(findings.warning(codes::EXCLUDES_NOTHING, excluded.span, "no combination has these values".to_owned()));
                }
            }
            if all.iter().all(|combination| matrix.exclude.iter().any(|excluded| matches(&combination.values, &excluded.value))) {
                findings.report(findings.error(codes::MATRIX, id.span, format!("`exclude` leaves the matrix of `{}` without a combination", id.value)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn axes(axes: &Value) -> Vec<(String, Vec<Value>)> {
        axes.as_object().expect("a map").iter().map(|(name, values)| (name.clone(), values.as_array().expect("a list").clone())).collect()
    }

    #[test]
    fn every_combination_has_a_key_of_its_own() {
        let all =
            combinations(&axes(&json!({"a": ["x,y", "x"], "b": ["z", "y,z", {"deep": 1}]})), &[json!({"a": "x", "b": {"deep": 1}})]).expect("they combine");
        let keys: Vec<&str> = all.iter().map(|combination| combination.key.as_str()).collect();
        assert_eq!(keys, ["x,y,z", "x,y,y,z", "x,y,2", "x,z", "x,y,z~2"]);
        assert_eq!(Value::Object(all[4].values.clone()), json!({"a": "x", "b": "y,z"}));
    }

    #[test]
    fn what_cannot_be_combined_is_refused() {
        assert_eq!(combinations(&axes(&json!({"a": []})), &[]), Err(MatrixError::Empty("a".to_owned())));
        assert_eq!(combinations(&axes(&json!({"a": [1, 2, 1]})), &[]), Err(MatrixError::Twice { axis: "a".to_owned(), value: "1".to_owned() }));
        let wide: Vec<usize> = (0..101).collect();
        assert_eq!(combinations(&axes(&json!({"a": wide, "b": wide})), &[]), Err(MatrixError::TooMany));
    }
}
