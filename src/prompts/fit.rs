//! Fits a prompt into a room: results of steps that are too long are cut, each to the same length, and each says where
//! the whole of it is. The same values give the same bytes. A text that is too long by itself is cut in its middle, so
//! that fitting never fails.
use super::{Scope, TemplateError, render};
use serde_json::Value;

/// What is left of a result at the least, in bytes.
const LEAST: usize = 160;
/// The longest reference to the whole of something.
const NOTE: usize = 200;
/// The fields of a result that may be long.
const FIELDS: [&str; 5] = ["output", "stdout", "stderr", "output_tail", "error"];

/// A prompt that fits.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    /// The text.
    pub text: String,
    /// What is not in it whole, in the order of the results: to be kept where `reference` says.
    pub cut: Vec<Whole>,
}

/// Something that stands in a prompt in part.
#[derive(Debug, Clone, PartialEq)]
pub struct Whole {
    /// `result STEP/KEY`, `result STEP` or `prompt`.
    pub name: String,
    /// All of it.
    pub content: String,
}

/// Renders a template as text of at most `room` bytes; `reference` says where the whole of what is cut will be.
///
/// # Errors
/// Those of rendering; never that it is too long.
pub fn fit(template: &str, scope: &Scope, room: usize, reference: &dyn Fn(&str) -> String) -> Result<Fitted, TemplateError> {
    let whole = render(template, scope);
    if let Ok(text) = &whole
        && text.len() <= room
    {
        return Ok(Fitted { text: text.clone(), cut: Vec::new() });
    }
    let steps = scope.get("steps").unwrap_or_default();
    let at = |cap: usize| {
        let mut cutter = Cutter { cap, reference, cut: Vec::new() };
        let mut cut = scope.clone();
        cut.insert("steps", &cutter.steps(&steps));
        render(template, &cut).map(|text| Fitted { text, cut: cutter.cut })
    };
    // A large cap whose text fits, by halving: the text grows with it. What is read is often a part of a result, so that
    // a cap may be some times the room's even share.
    let sizes = sizes(&steps);
    let longest = sizes.iter().copied().max().unwrap_or_default();
    let (mut fits, mut low, mut high) = (None, LEAST, longest.min(room).min(4 * room / sizes.iter().filter(|size| **size > LEAST).count().max(1)));
    while low <= high && (fits.is_none() || high - low > low / 32) {
        let cap = low + (high - low) / 2;
        match at(cap) {
            Ok(fitted) if fitted.text.len() <= room => {
                (fits, low) = (Some(fitted), cap + 1);
            }
            Ok(_) | Err(_) if cap <= LEAST => break,
            Ok(_) | Err(_) => high = cap - 1,
        }
    }
    match fits {
        Some(fitted) => Ok(fitted),
        None => {
            at(LEAST).or_else(|error| whole.map(|text| Fitted { text, cut: Vec::new() }).map_err(|_| error)).map(|fitted| middle_cut(fitted, room, reference))
        }
    }
}

/// Cuts a text that no result makes too long.
fn middle_cut(fitted: Fitted, room: usize, reference: &dyn Fn(&str) -> String) -> Fitted {
    let Fitted { text, mut cut } = fitted;
    if text.len() <= room {
        return Fitted { text, cut };
    }
    let kept = room.saturating_sub(NOTE);
    let (head, tail) = (text.floor_char_boundary(kept * 3 / 4), text.ceil_char_boundary(text.len() - kept / 4));
    let short = format!("{}\n[… {} bytes of this prompt are not shown; the whole: {}]\n{}", &text[..head], tail - head, reference("prompt"), &text[tail..]);
    cut.push(Whole { name: "prompt".to_owned(), content: text });
    Fitted { text: short, cut }
}

/// Returns the sizes of all results.
fn sizes(steps: &Value) -> Vec<usize> {
    let of = |value: &Value| FIELDS.iter().filter_map(|field| value.get(field)).map(size).max().unwrap_or_default();
    let each = |step: &Value| step.get("results").and_then(Value::as_array).into_iter().flatten().map(of).chain([of(step)]).collect::<Vec<_>>();
    steps.as_object().into_iter().flat_map(|steps| steps.values()).flat_map(each).collect()
}

/// Returns about how many bytes a value takes.
fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(|value| size(value) + 1).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + size(value) + 4).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 5,
    }
}

/// Cuts what is longer than its cap.
struct Cutter<'a> {
    cap: usize,
    reference: &'a dyn Fn(&str) -> String,
    cut: Vec<Whole>,
}

impl Cutter<'_> {
    fn steps(&mut self, steps: &Value) -> Value {
        let mut steps = steps.clone();
        for (id, step) in steps.as_object_mut().into_iter().flatten() {
            self.result(&format!("result {id}"), step);
            for result in step.get_mut("results").and_then(Value::as_array_mut).into_iter().flatten() {
                let key = result.get("key").map(text_of).unwrap_or_default();
                self.result(&format!("result {id}/{key}"), result);
            }
        }
        steps
    }

    fn result(&mut self, name: &str, result: &mut Value) {
        for field in FIELDS {
            let Some(value) = result.get_mut(field) else { continue };
            if size(value) <= self.cap {
                continue;
            }
            let whole = text_of(value);
            // The output is what a result is; its other parts are told apart by their names.
            let name = if field == "output" { name.to_owned() } else { format!("{name} {field}") };
            let note = format!("[… the rest of {name}: {}]", (self.reference)(&name));
            *value = shortened(value, self.cap.saturating_sub(note.len()), &note);
            self.cut.push(Whole { name, content: whole });
        }
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns a value of about `room` bytes that has the same shape: texts are cut, and so are lists; the fields of a map share
/// its room, and what a short one does not need is there for those after it.
fn shortened(value: &Value, room: usize, note: &str) -> Value {
    match value {
        Value::String(text) => Value::String(format!("{}\n{note}", &text[..text.floor_char_boundary(room)])),
        Value::Array(values) => {
            let mut left = room;
            let mut kept: Vec<Value> = Vec::new();
            for value in values {
                let length = size(value) + 1;
                if length > left {
                    // A text at the end can say that there is more; among things of another shape it would be in the way.
                    let rest = if kept.is_empty() { Some(shortened(value, left, note)) } else { value.as_str().map(|_| Value::from(note)) };
                    kept.extend(rest);
                    break;
                }
                left -= length;
                kept.push(value.clone());
            }
            Value::Array(kept)
        }
        Value::Object(fields) => {
            let mut left = room;
            let mut kept = serde_json::Map::new();
            for (at, (name, value)) in fields.iter().enumerate() {
                let share = left / (fields.len() - at);
                let length = size(value) + name.len() + 4;
                let value = if length <= share { value.clone() } else { shortened(value, share.saturating_sub(name.len() + note.len() + 4), note) };
                left = left.saturating_sub(size(&value) + name.len() + 4);
                kept.insert(name.clone(), value);
            }
            Value::Object(kept)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn reference(name: &str) -> String {
        format!("artefact {}", name.replace(' ', "_"))
    }

    fn scope(results: usize, bytes: usize) -> Scope {
        let result = |at: usize| json!({"key": format!("k{at}"), "ok": true, "output": format!("<{at}>{}", "é".repeat(bytes / 2)), "error": null});
        Scope::new().with("steps", json!({"all": {"status": "succeeded", "results": (0..results).map(result).collect::<Vec<_>>()}}))
    }

    const EACH: &str = "Judge:\n{% for r in steps.all.results %}## {{ r.key }}\n{{ r.output }}\n{% endfor %}That is all.";

    #[test]
    fn what_fits_is_left_alone_and_what_does_not_is_cut_evenly() {
        let small = scope(3, 10);
        let whole = fit(EACH, &small, 10_000, &reference).unwrap();
        assert_eq!((whole.text, whole.cut.len()), (render(EACH, &small).unwrap(), 0));

        let large = scope(200, 50_000);
        let fitted = fit(EACH, &large, 400_000, &reference).unwrap();
        assert!(fitted.text.len() <= 400_000 && fitted.text.len() > 370_000, "{}", fitted.text.len());
        assert_eq!(fitted.cut.len(), 200);
        for at in [0, 99, 199] {
            assert!(
                fitted.text.contains(&format!("## k{at}\n<{at}>éé"))
                    && fitted.text.contains(&format!("[… the rest of result all/k{at}: artefact result_all/k{at}]"))
            );
        }
        assert!(fitted.text.ends_with("That is all."));
        assert_eq!(fitted.cut[7].content, format!("<7>{}", "é".repeat(25_000)));
        assert_eq!(fit(EACH, &large, 400_000, &reference).unwrap(), fitted);
    }

    #[test]
    fn a_short_result_stays_whole_beside_a_long_one_and_shapes_are_kept() {
        let scope = Scope::new().with(
            "steps",
            json!({"a": {"output": {"title": "short", "findings": (0..500).map(|at| json!({"file": format!("f{at}")})).collect::<Vec<_>>(), "n": 5}}, "b": {"output": "tiny"}}),
        );
        let template = "{{ steps.a.output.title }} {% for f in steps.a.output.findings %}{{ f.file }} {% endfor %}{{ steps.a.output.n }} {{ steps.b.output }}";
        let fitted = fit(template, &scope, 900, &reference).unwrap();
        assert!(fitted.text.starts_with("short f0 f1 ") && fitted.text.ends_with("5 tiny") && fitted.text.len() <= 900, "{}", fitted.text);
        assert_eq!(fitted.cut.iter().map(|whole| whole.name.as_str()).collect::<Vec<_>>(), ["result a"]);
    }

    #[test]
    fn it_never_fails_as_too_long() {
        let scope = Scope::new().with("inputs", json!({"text": "x".repeat(100_000)})).with("steps", json!({}));
        let fitted = fit("Do {{ inputs.text }} now", &scope, 5_000, &reference).unwrap();
        assert!(fitted.text.len() <= 5_000 && fitted.text.contains("the whole: artefact prompt") && fitted.text.ends_with("x now"));
        assert!(fit("{{ nothing }}", &scope, 5_000, &reference).is_err());
        let many = self::scope(5_000, 1_000);
        assert!(fit(EACH, &many, 20_000, &reference).unwrap().text.len() <= 20_000);
    }
}
