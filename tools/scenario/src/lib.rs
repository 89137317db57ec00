//! Scenario files: scripted calls, crashes and repeats against the guard, each line judged by what it expects.
//!
//! A file holds one JSON object a line in a strict form: an unknown key, operation or value is an error of the file,
//! never ignored, so that a misspelt expectation can't pass by saying nothing. [`mod@file`] reads the form and
//! [`engine`] runs it.
#![forbid(unsafe_code)]

pub mod engine;
pub mod file;
