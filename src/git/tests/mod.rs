//! Tests of git on real repositories.
mod capture;
mod checkpoint;
mod merging;
mod refs;
mod repository;
mod workspaces;
