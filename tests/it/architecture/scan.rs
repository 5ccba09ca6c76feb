//! What one source file says: which modules of the crate it names and where, how long it and its functions are, whether it
//! has a doc. Syntax only; test items are passed over.
use proc_macro2::{TokenStream, TokenTree};
use std::collections::BTreeSet;
use syn::{
    Attribute, Meta, UseTree,
    punctuated::Punctuated,
    spanned::Spanned as _,
    visit::{self, Visit},
};

/// A path of the crate that a file names, from the crate's root, and its line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Named {
    pub(super) path: Vec<String>,
    pub(super) line: usize,
    /// Everything of it is taken, by `*`.
    pub(super) glob: bool,
}

/// What a file says.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) named: Vec<Named>,
    /// Name, line and length of every function.
    pub(super) functions: Vec<(String, usize, usize)>,
    /// Modules declared in it, with their lines.
    pub(super) modules: Vec<(String, usize)>,
    /// Modules that are only there in tests, declared without a body.
    pub(super) test_files: Vec<String>,
    /// Lines with `unsafe`, or with an attribute that lets it in.
    pub(super) unsafe_lines: Vec<usize>,
    /// Lines that are no test's.
    pub(super) lines: usize,
    pub(super) has_doc: bool,
}

/// Scans a file; `module` is its own path from the crate's root.
pub(super) fn scan(text: &str, module: &[String]) -> syn::Result<Scan> {
    let file = syn::parse_file(text)?;
    let mut scanner = Scanner { module: module.to_vec(), roots: BTreeSet::new(), scan: Scan::default(), test_lines: 0 };
    // Names for the crate's root are found first, since they may be used above their `use`.
    Roots(&mut scanner).visit_file(&file);
    scanner.visit_file(&file);
    let mut scan = scanner.scan;
    scan.lines = text.lines().count() - scanner.test_lines;
    scan.has_doc = says_something(&file.attrs);
    scan.unsafe_lines.sort_unstable();
    scan.named.sort();
    scan.named.dedup();
    Ok(scan)
}

/// Returns whether a doc has three words at least, or comes from another file.
fn says_something(attributes: &[Attribute]) -> bool {
    let docs = attributes.iter().filter(|attribute| attribute.path().is_ident("doc"));
    let words = docs.map(|attribute| match &attribute.meta {
        Meta::NameValue(syn::MetaNameValue { value: syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }), .. }) => {
            text.value().split_whitespace().count()
        }
        Meta::NameValue(_) => 3,
        Meta::List(_) | Meta::Path(_) => 0,
    });
    words.sum::<usize>() >= 3
}

struct Scanner {
    module: Vec<String>,
    /// Names that stand for the crate's root in this file, by `use crate as root`.
    roots: BTreeSet<String>,
    scan: Scan,
    test_lines: usize,
}

impl Scanner {
    /// Returns a path from the crate's root; `None` where it leads out of the crate.
    fn resolve(&self, segments: &[String]) -> Option<Vec<String>> {
        let mut path = match segments.first()?.as_str() {
            "crate" | "spinney" => Vec::new(),
            "self" | "super" => self.module.clone(),
            first if self.roots.contains(first) => Vec::new(),
            _ => return None,
        };
        let rest = if segments[0] == "super" { segments } else { &segments[1..] };
        for segment in rest {
            match segment.as_str() {
                "super" => {
                    path.pop()?;
                }
                "self" => {}
                name => path.push(name.to_owned()),
            }
        }
        Some(path)
    }

    fn name(&mut self, segments: &[String], line: usize, glob: bool) {
        if let Some(path) = self.resolve(segments)
            && (glob || !path.is_empty())
        {
            self.scan.named.push(Named { path, line, glob });
        }
    }

    fn use_tree(&mut self, tree: &UseTree, before: &mut Vec<String>) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.use_tree(&path.tree, before);
                before.pop();
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.use_tree(tree, before)),
            UseTree::Name(leaf) => self.leaf(&leaf.ident, before, false),
            UseTree::Rename(leaf) => self.leaf(&leaf.ident, before, false),
            UseTree::Glob(glob) => self.name(before, glob.star_token.span().start().line, true),
        }
    }

    fn leaf(&mut self, ident: &syn::Ident, before: &mut Vec<String>, glob: bool) {
        before.push(ident.to_string());
        self.name(before, ident.span().start().line, glob);
        before.pop();
    }

    /// Finds paths in tokens that are no syntax yet: what macros are given, and what attributes say.
    fn tokens(&mut self, tokens: TokenStream, texts: bool) {
        let trees: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < trees.len() {
            match &trees[at] {
                TokenTree::Ident(ident) if !is_colons(&trees, at.wrapping_sub(2)) => {
                    let line = ident.span().start().line;
                    let (segments, end) = chain(&trees, at);
                    at = end;
                    if let (true, Some(TokenTree::Group(group))) = (is_colons(&trees, end), trees.get(end + 2)) {
                        self.group(&segments, group.stream());
                        at = end + 3;
                    } else {
                        self.name(&segments, line, false);
                    }
                }
                TokenTree::Group(group) => {
                    self.tokens(group.stream(), texts);
                    at += 1;
                }
                TokenTree::Literal(literal) if texts => {
                    self.text(&literal.to_string(), literal.span().start().line);
                    at += 1;
                }
                _ => at += 1,
            }
        }
    }

    /// Takes `{a, b::c}` after a path.
    fn group(&mut self, before: &[String], tokens: TokenStream) {
        let trees: Vec<TokenTree> = tokens.into_iter().collect();
        for part in trees.split(|tree| matches!(tree, TokenTree::Punct(punct) if punct.as_char() == ',')) {
            let Some(first) = part.first() else { continue };
            let (segments, end) = chain(part, 0);
            let whole: Vec<String> = before.iter().cloned().chain(segments).collect();
            match part.get(end + 2) {
                Some(TokenTree::Group(group)) if is_colons(part, end) => self.group(&whole, group.stream()),
                _ => self.name(&whole, first.span().start().line, false),
            }
        }
    }

    /// Finds a path in an attribute's text, as in `#[serde(with = "crate::x")]`.
    fn text(&mut self, literal: &str, line: usize) {
        if let Ok(path) = literal.trim_matches('"').parse::<TokenStream>() {
            let before = self.scan.named.len();
            self.tokens(path, false);
            self.scan.named[before..].iter_mut().for_each(|named| named.line = line);
        }
    }

    /// Passes a test's item over and counts its lines.
    fn passes_over(&mut self, attributes: &[Attribute], item: proc_macro2::Span) -> bool {
        let passed = attributes.iter().any(is_for_tests);
        if passed {
            let start = attributes.iter().map(|attribute| attribute.span().start().line).min().unwrap_or(item.start().line);
            self.test_lines += item.end().line + 1 - start.min(item.start().line);
        }
        passed
    }

    fn function(&mut self, name: &syn::Ident, from: proc_macro2::Span, to: proc_macro2::Span) {
        let start = from.start().line;
        self.scan.functions.push((name.to_string(), start, to.end().line + 1 - start));
    }

    fn no_unsafe(&mut self, token: Option<&syn::Token![unsafe]>) {
        self.scan.unsafe_lines.extend(token.map(|token| token.span.start().line));
    }
}

/// Reads `a::b::c` from `at`; gives its segments and where it ends.
fn chain(trees: &[TokenTree], at: usize) -> (Vec<String>, usize) {
    let (mut segments, mut end) = (Vec::new(), at);
    while let Some(TokenTree::Ident(ident)) = trees.get(end) {
        segments.push(ident.to_string());
        end += 1;
        match (is_colons(trees, end), trees.get(end + 2)) {
            (true, Some(TokenTree::Ident(_))) => end += 2,
            _ => break,
        }
    }
    (segments, end)
}

fn is_colons(trees: &[TokenTree], at: usize) -> bool {
    let is_colon = |tree: Option<&TokenTree>| matches!(tree, Some(TokenTree::Punct(punct)) if punct.as_char() == ':');
    at < trees.len() && is_colon(trees.get(at)) && is_colon(trees.get(at + 1))
}

/// Returns whether an attribute leaves its item to tests alone: `#[test]`, `#[cfg(test)]`, `#[cfg(all(test, …))]`.
fn is_for_tests(attribute: &Attribute) -> bool {
    fn holds_in_tests_only(meta: &Meta) -> bool {
        match meta {
            Meta::Path(path) => path.is_ident("test"),
            Meta::List(list) if list.path.is_ident("all") => {
                list.parse_args_with(Punctuated::<Meta, syn::Token![,]>::parse_terminated).is_ok_and(|parts| parts.iter().any(holds_in_tests_only))
            }
            Meta::List(_) | Meta::NameValue(_) => false,
        }
    }
    attribute.path().is_ident("test")
        || attribute.path().segments.len() == 2 && attribute.path().segments[1].ident == "test"
        || attribute.path().is_ident("cfg") && attribute.parse_args::<Meta>().is_ok_and(|condition| holds_in_tests_only(&condition))
}

fn item_attributes(item: &syn::Item) -> &[Attribute] {
    use syn::Item;
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn impl_item_attributes(item: &syn::ImplItem) -> &[Attribute] {
    use syn::ImplItem;
    match item {
        ImplItem::Const(item) => &item.attrs,
        ImplItem::Fn(item) => &item.attrs,
        ImplItem::Type(item) => &item.attrs,
        ImplItem::Macro(item) => &item.attrs,
        _ => &[],
    }
}

impl<'ast> Visit<'ast> for Scanner {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if self.passes_over(item_attributes(item), item.span()) {
            if let syn::Item::Mod(syn::ItemMod { ident, content: None, .. }) = item {
                self.scan.test_files.push(ident.to_string());
            }
            return;
        }
        visit::visit_item(self, item);
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        if !self.passes_over(impl_item_attributes(item), item.span()) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if !self.passes_over(&local.attrs, local.span()) {
            visit::visit_local(self, local);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        self.scan.modules.push((module.ident.to_string(), module.ident.span().start().line));
        self.module.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if item.leading_colon.is_none() {
            self.use_tree(&item.tree, &mut Vec::new());
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            // A single `self` or `Self` is a value or a type.
            if segments.len() > 1 {
                self.name(&segments, path.span().start().line, false);
            }
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.tokens(called.tokens.clone(), false);
        visit::visit_macro(self, called);
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if attribute.path().is_ident("doc") {
            return;
        }
        let relaxes = attribute.path().is_ident("allow") || attribute.path().is_ident("expect");
        match &attribute.meta {
            Meta::List(list) => {
                if relaxes && list.tokens.clone().into_iter().any(|token| token.to_string() == "unsafe_code") {
                    self.scan.unsafe_lines.push(attribute.span().start().line);
                }
                self.tokens(list.tokens.clone(), !relaxes);
            }
            Meta::NameValue(pair) => {
                if let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &pair.value {
                    self.text(&text.value(), text.span().start().line);
                }
            }
            Meta::Path(_) => {}
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.function(&function.sig.ident, function.sig.span(), function.block.span());
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.function(&function.sig.ident, function.sig.span(), function.block.span());
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.function(&function.sig.ident, function.sig.span(), block.span());
        }
        visit::visit_trait_item_fn(self, function);
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        self.no_unsafe(signature.unsafety.as_ref());
        visit::visit_signature(self, signature);
    }

    fn visit_expr_unsafe(&mut self, block: &'ast syn::ExprUnsafe) {
        self.no_unsafe(Some(&block.unsafe_token));
        visit::visit_expr_unsafe(self, block);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        self.no_unsafe(item.unsafety.as_ref());
        visit::visit_item_impl(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.no_unsafe(item.unsafety.as_ref());
        visit::visit_item_trait(self, item);
    }

    fn visit_item_foreign_mod(&mut self, item: &'ast syn::ItemForeignMod) {
        self.no_unsafe(item.unsafety.as_ref());
        visit::visit_item_foreign_mod(self, item);
    }
}

/// Finds the names that stand for the crate's root.
struct Roots<'a>(&'a mut Scanner);

impl Roots<'_> {
    fn tree(&mut self, tree: &UseTree, before: &mut Vec<String>) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.tree(&path.tree, before);
                before.pop();
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.tree(tree, before)),
            UseTree::Rename(leaf) => {
                before.push(leaf.ident.to_string());
                if self.0.resolve(before).is_some_and(|path| path.is_empty()) {
                    self.0.roots.insert(leaf.rename.to_string());
                }
                before.pop();
            }
            UseTree::Name(_) | UseTree::Glob(_) => {}
        }
    }
}

impl<'ast> Visit<'ast> for Roots<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        self.0.module.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.0.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.tree(&item.tree, &mut Vec::new());
    }

    fn visit_item_extern_crate(&mut self, item: &'ast syn::ItemExternCrate) {
        if let (true, Some((_, rename))) = (item.ident == "self", &item.rename) {
            self.0.roots.insert(rename.to_string());
        }
    }
}
