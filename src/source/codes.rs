//! The codes of diagnostics: stable for ever, one line each. A code that is no longer raised stays taken.

macro_rules! codes {
    ($($name:ident = $code:literal, $what:literal;)*) => {
        $(#[doc = $what] pub const $name: &str = $code;)*
        /// Every code with what it stands for, in order.
        pub const ALL: &[(&str, &str)] = &[$(($code, $what)),*];
        /// The name of every code, in the same order.
        pub const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

codes! {
    SYNTAX = "E001", "the file is not YAML";
    TOO_MUCH = "E002", "the file is too long, too deep, or its aliases multiply it";
    DUPLICATE_KEY = "E003", "a key stands twice in one map";
    UNREADABLE = "E004", "a file that cannot be read as text";
    UNKNOWN_KEY = "E010", "a key that the language does not have at this place";
    LATER = "E011", "part of the language but not of this version";
    MISSING_KEY = "E012", "a key that must be there is missing";
    WRONG_TYPE = "E013", "a value of another type than expected";
    BAD_DURATION = "E014", "a duration that cannot be read";
    BAD_NAME = "E015", "a name with characters it must not have";
    UNKNOWN_WORD = "E016", "a word outside the closed set for this key";
    OUT_OF_RANGE = "E017", "a number or a length outside its range";
    VERSION = "E018", "a version of the language that this program does not read";
    VERBS = "E020", "a step with no verb, or with several";
    NOT_OF_THIS_VERB = "E021", "a key that says nothing for this kind of step";
    UNKNOWN_STEP = "E030", "no step has this id";
    UNKNOWN_AGENT = "E031", "no agent has this name";
    UNKNOWN_SKILL = "E032", "no skill has this name";
    UNKNOWN_HOOK = "E033", "no hook has this name";
    UNKNOWN_TOOL = "E034", "no tool has this name";
    UNKNOWN_SCHEMA = "E035", "no schema has this name";
    UNKNOWN_MODEL = "E036", "no alias and no provider has this name";
    NO_FILE = "E037", "a prompt file that is not found";
    NO_MODEL = "E038", "an agent at work without a model";
    BAD_SCHEMA = "E039", "a schema that is not JSON Schema";
    CYCLE = "E040", "steps that wait for each other";
    RESERVED = "E041", "a name that is taken by the language";
    NEED_TWICE = "E042", "a step that needs another one twice, or takes it in twice";
    UNKNOWN_SERVER = "E043", "no server has this name";
    TEMPLATE = "E050", "a template that does not parse";
    UNKNOWN_NAME = "E051", "a template reads a name that is not in scope";
    UNKNOWN_INPUT = "E052", "a template reads an input that is not declared";
    READ_UNKNOWN_STEP = "E053", "a template reads a step that does not exist";
    NOT_WAITED_FOR = "E054", "a template reads a step that has not ended by then";
    UNKNOWN_FIELD = "E055", "a template reads something that a step of this kind does not have";
    UNKNOWN_OUTPUT_FIELD = "E056", "a template reads a field that the schema does not have";
    UNQUOTED = "E057", "a command inserts a value without saying how it is quoted";
    NOT_AN_EXPRESSION = "E058", "a value that must be one whole expression";
    MAY_BE_NULL = "E059", "a value that may be null where null is an error";
    WRITERS_RACE = "E060", "two unordered writers meet and nothing joins them";
    NEVER_JOINED = "E061", "two writers that nothing joins at the end";
    CANNOT_MERGE = "E062", "a merge of a step that does not write";
    NEEDS_WORKTREE = "E063", "a writing step without a worktree";
    VERIFY_READER = "E064", "checks of a step that does not write";
    BUDGET = "E065", "a budget larger than that of what is around it";
    BAD_DEFAULT = "E066", "a default that its own input refuses";
    UNKNOWN_WORKFLOW = "E070", "no workflow has this name";
    RECURSION = "E071", "workflows that call each other without end";
    BROKEN_WORKFLOW = "E072", "a call of a workflow that has errors of its own";
    BAD_CALL = "E073", "inputs that the called workflow does not take";
    SECRET = "E074", "a secret that is not declared, or is read where its value would be seen";
    MATRIX = "E075", "a matrix that cannot be multiplied out";
    CANDIDATES = "E076", "a choice without two candidates";
    ON_TIMEOUT = "E077", "a wait for a person that ends without saying what that means";
    NO_PRICE = "E078", "a limit in dollars on a model whose price is not known";
    BAD_FILE = "E079", "a name that no file can have here, or that two have";
    BAD_GLOB = "E080", "a pattern that matches no file";
    TOO_MANY_STEPS = "E081", "more steps, with those of all workflows that are called, than a run can have";
    NO_RULE = "E082", "a rule that was to forbid or to ask, and does nothing";
    OPENED = "E083", "a sandbox that opens what no agent is given";
    OUTSIDE = "E084", "a folder outside of the workspace";
    ITEMS = "E085", "items that no step could begin with";
    NOT_RUN_THERE = "E086", "a tool of the provider that the provider of a model does not have";
    DESTINATION = "E087", "a network that is no list of hosts";
    STUB = "E090", "a stub that says what no run of the workflow could give";
    NOTHING_TO_SUPERVISE = "W001", "an orchestrator without items to supervise";
    TOOL_REMOVED = "W002", "a tool that the agent's access takes away again";
    UNUSED_AGENT = "W003", "an agent that nothing uses";
    IGNORED = "W004", "a part of an agent file that is not known here and is left out";
    SIMPLER = "W005", "a part of the language that this version does in a simpler way";
    EXCLUDES_NOTHING = "W006", "an exclusion that matches nothing";
    OUT_OF_REACH = "W007", "a step with items that the orchestrator does not reach";
    SHARED_FILE = "W008", "items that would keep their outputs as one file";
    UNUSED_DEFAULT = "W009", "a default for workspaces that no step takes up";
    ODD_HOOK = "W010", "a hook that will not do what it says";
    ODD_RULE = "W011", "a permission rule that will not do what it says";
}

#[cfg(test)]
mod tests {
    #[test]
    fn codes_are_distinct_and_in_order() {
        assert!(super::ALL.is_sorted_by(|a, b| (a.0.starts_with('W'), a.0) < (b.0.starts_with('W'), b.0)));
    }
}
