//! `spinney graph`: a workflow's steps and what they wait for, as a picture in a notation that others draw.
use super::{
    args::{self, Notation},
    context::{Context, Failed},
    report::{block, put},
    validate,
};

pub(super) fn run(args: &args::Graph, context: &mut Context) -> Result<u8, Failed> {
    let plan = validate::plan_of(context, &args.workflow)?;
    let drawn = match args.format {
        Notation::Mermaid => plan.mermaid(),
        Notation::Dot => plan.dot(),
    };
    put(context, &block(&drawn))?;
    Ok(0)
}
