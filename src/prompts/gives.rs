//! What expressions give, as far as the text of a template says it: names that it binds itself stand for what they are bound to.
use super::{ENTRY, VALUE};
use std::rc::Rc;

/// The longest path that is followed.
const MAX_PARTS: usize = 64;
/// The most parts of what a template makes that are followed.
const MAX_SIZE: usize = 500;

/// A kind of value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Names and what stands under them.
    Map,
    /// Entries.
    List,
    /// Letters.
    Text,
    /// A number.
    Number,
    /// True or false.
    Flag,
    /// One of the two: what a command has said, say.
    TextOrNumber,
    /// Nothing.
    Null,
}

impl Kind {
    /// Returns the words for it.
    pub fn words(self) -> &'static str {
        match self {
            Kind::Map => "a map",
            Kind::List => "a list",
            Kind::Text => "text",
            Kind::Number => "a number",
            Kind::Flag => "true or false",
            Kind::TextOrNumber => "text or a number",
            Kind::Null => "null",
        }
    }
}

/// What an expression gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gives {
    /// Nobody knows.
    Unknown,
    /// A value that is written there.
    Literal(Kind),
    /// A value that the template works out.
    Made(Kind),
    /// What stands in the scope at a path.
    Path(Vec<String>),
    /// A list made in the template, each entry of which is this.
    List(Rc<Made>),
    /// A map made in the template, which holds just these.
    Map(Rc<Vec<(String, Made)>>),
    /// A map made in the template, each value of which is this.
    Values(Rc<Made>),
    /// What a condition has looked at before it was given: whoever has it need not ask again.
    Asked(Rc<Made>),
}

/// What stands in something that the template makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    gives: Gives,
    /// How many parts it has, those counted again that are shared.
    size: usize,
}

impl Made {
    /// What would be too large is not known: parts are shared, and would be counted, and walked, again and again.
    fn new(gives: Gives) -> Made {
        let size = match &gives {
            Gives::Unknown | Gives::Literal(_) | Gives::Made(_) | Gives::Path(_) => 1,
            Gives::List(entry) | Gives::Values(entry) | Gives::Asked(entry) => entry.size + 1,
            Gives::Map(fields) => fields.iter().map(|(_, field)| field.size).sum::<usize>() + 1,
        };
        if size <= MAX_SIZE { Made { gives, size } } else { Made { gives: Gives::Unknown, size: 1 } }
    }
}

impl Gives {
    pub(super) fn list(entry: Gives) -> Gives {
        Gives::List(Rc::new(Made::new(entry)))
    }

    pub(super) fn values(value: Gives) -> Gives {
        Gives::Values(Rc::new(Made::new(value)))
    }

    /// Returns the same value, which a condition has looked at.
    pub(super) fn asked(self) -> Gives {
        if self.path().is_some() && !self.is_asked() { Gives::Asked(Rc::new(Made::new(self))) } else { self }
    }

    /// Returns whether a condition has looked at it.
    pub fn is_asked(&self) -> bool {
        matches!(self, Gives::Asked(_))
    }

    /// Returns where in the scope it stands, where it does.
    pub fn path(&self) -> Option<&[String]> {
        match self {
            Gives::Path(path) => Some(path),
            Gives::Asked(asked) => asked.gives.path(),
            Gives::Unknown | Gives::Literal(_) | Gives::Made(_) | Gives::List(_) | Gives::Map(_) | Gives::Values(_) => None,
        }
    }

    /// Returns the same, with what is in it at these places in the scope as looked at.
    pub(super) fn where_asked(&self, is_asked: &dyn Fn(&[String]) -> bool) -> Gives {
        match self {
            Gives::Path(path) if is_asked(path) => self.clone().asked(),
            Gives::Unknown | Gives::Literal(_) | Gives::Made(_) | Gives::Path(_) | Gives::Asked(_) => self.clone(),
            Gives::List(entry) => Gives::list(entry.gives.where_asked(is_asked)),
            Gives::Values(value) => Gives::values(value.gives.where_asked(is_asked)),
            Gives::Map(fields) => Gives::map(fields.iter().map(|(name, field)| (name.clone(), field.gives.where_asked(is_asked))).collect()),
        }
    }

    /// Returns what kind of value it is, where the template itself says so.
    pub fn kind(&self) -> Option<Kind> {
        match self {
            Gives::Asked(asked) => asked.gives.kind(),
            Gives::Literal(kind) | Gives::Made(kind) => Some(*kind),
            Gives::List(_) => Some(Kind::List),
            Gives::Map(_) | Gives::Values(_) => Some(Kind::Map),
            Gives::Unknown | Gives::Path(_) => None,
        }
    }

    /// Returns what is known of a value that is either this or another one.
    pub(super) fn or(self, other: &Gives) -> Gives {
        match (self.kind(), other.kind()) {
            _ if self == *other => self,
            (Some(own), Some(kind)) if own == kind => Gives::Made(own),
            _ => Gives::Unknown,
        }
    }

    pub(super) fn map(fields: Vec<(String, Gives)>) -> Gives {
        Gives::Map(Rc::new(fields.into_iter().map(|(name, gives)| (name, Made::new(gives))).collect()))
    }

    /// Returns the list of several values: of maps one that holds what any of them holds.
    pub(super) fn several(mut entries: Vec<Gives>) -> Gives {
        if entries.len() == 1 {
            return Gives::list(entries.remove(0));
        }
        let mut fields: Vec<(String, Gives)> = Vec::new();
        for entry in entries {
            let Gives::Map(own) = entry else { return Gives::list(Gives::Unknown) };
            for (name, field) in own.iter() {
                match fields.iter_mut().find(|(known, _)| known == name) {
                    Some((_, known)) => *known = Gives::Unknown,
                    None => fields.push((name.clone(), field.gives.clone())),
                }
            }
        }
        Gives::list(if fields.is_empty() { Gives::Unknown } else { Gives::map(fields) })
    }

    /// Returns what stands in it under a name, for [`ENTRY`] any entry of it, and for [`VALUE`] any value of it.
    ///
    /// # Errors
    /// The names that there are, where this is none of them.
    pub fn part(&self, name: &str) -> Result<Gives, Vec<String>> {
        match self {
            Gives::Path(path) if path.len() < MAX_PARTS => Ok(Gives::Path(path.iter().cloned().chain([name.to_owned()]).collect())),
            Gives::Asked(asked) => asked.gives.part(name).map(Gives::asked),
            Gives::List(entry) if name == ENTRY => Ok(entry.gives.clone()),
            Gives::Values(value) if name != ENTRY => Ok(value.gives.clone()),
            Gives::Map(fields) if name == VALUE => {
                let mut values = fields.iter().map(|(_, field)| field.gives.clone());
                Ok(values.next().map_or(Gives::Unknown, |first| values.fold(first, |value, other| value.or(&other))))
            }
            Gives::Map(fields) if name != ENTRY => match fields.iter().find(|(known, _)| known == name) {
                Some((_, field)) => Ok(field.gives.clone()),
                None => Err(fields.iter().map(|(known, _)| known.clone()).collect()),
            },
            Gives::Unknown | Gives::Literal(_) | Gives::Made(_) | Gives::Path(_) | Gives::List(_) | Gives::Map(_) | Gives::Values(_) => Ok(Gives::Unknown),
        }
    }

    /// Returns what any entry of it is.
    #[must_use]
    pub fn entry(&self) -> Gives {
        self.part(ENTRY).unwrap_or(Gives::Unknown)
    }

    /// Puts what names turn out to be bound to in their place.
    pub(super) fn bind(&self, names: &[(String, Gives)]) -> Gives {
        match self {
            Gives::Unknown | Gives::Literal(_) | Gives::Made(_) => self.clone(),
            Gives::Path(path) => match path.first().and_then(|root| names.iter().find(|(name, _)| name == root)) {
                Some((_, bound)) => path[1..].iter().try_fold(bound.clone(), |gives, part| gives.part(part)).unwrap_or(Gives::Unknown),
                None => self.clone(),
            },
            Gives::Asked(asked) => asked.gives.bind(names).asked(),
            Gives::List(entry) => Gives::list(entry.gives.bind(names)),
            Gives::Values(value) => Gives::values(value.gives.bind(names)),
            Gives::Map(fields) => Gives::map(fields.iter().map(|(name, field)| (name.clone(), field.gives.bind(names))).collect()),
        }
    }
}

/// A look into what an expression gives.
#[derive(Debug, Clone)]
pub(super) struct Look {
    /// What is looked into.
    pub(super) from: Gives,
    /// The parts, one inside the other.
    pub(super) parts: Vec<String>,
    /// Whether more is read of it that is computed.
    pub(super) open: bool,
}

/// What a look comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Seen {
    /// Nobody knows.
    Nothing,
    /// A path in the scope; the first `given` parts of it are not of the look itself.
    Path { path: Vec<String>, given: usize, is_asked: bool },
    /// A part that what the template makes does not hold, and what it holds.
    Never { part: String, known: Vec<String> },
}

impl Look {
    /// Returns what it comes to.
    pub(super) fn seen(&self) -> Seen {
        let length = |gives: &Gives| gives.path().map(<[String]>::len);
        let mut given = length(&self.from);
        let mut gives = self.from.clone();
        for part in &self.parts {
            gives = match gives.part(part) {
                Ok(gives) => gives,
                Err(known) => return Seen::Never { part: part.clone(), known },
            };
            given = given.or_else(|| length(&gives));
        }
        match (gives.path(), given) {
            (Some(path), Some(given)) => Seen::Path { path: path.to_vec(), given, is_asked: gives.is_asked() },
            _ => Seen::Nothing,
        }
    }

    /// Returns what stands there.
    pub(super) fn gives(&self) -> Gives {
        if self.open {
            return Gives::Unknown;
        }
        self.parts.iter().try_fold(self.from.clone(), |gives, part| gives.part(part)).unwrap_or(Gives::Unknown)
    }
}
