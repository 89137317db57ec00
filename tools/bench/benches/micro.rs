//! `cargo bench -p toolonce-bench`: what costs processor time only, for comparing two versions of the code.

#![expect(missing_docs, reason = "criterion's macros make functions without any")]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use toolonce::canonical::{Arguments, Limits};
use toolonce::protocol::bytes::{decode, encode};
use toolonce::protocol::record::Base;
use toolonce_bench::figures::key::Sample;
use toolonce_bench::figures::replay;
use toolonce_bench::figures::{Bench, Length};

/// A record with one outcome, as the tests pin it.
const RECORD: &[u8] = include_bytes!("../../../tests/golden/record/v1-full.bin");

fn keys(criterion: &mut Criterion) {
    let samples = [("80 B", Sample::small()), ("400 B", Sample::medium()), ("1 MB", Sample::large())];
    for (size, sample) in samples {
        let sample = sample.expect("its schema is good");
        let mut group = criterion.benchmark_group(size);
        group.throughput(Throughput::Bytes(sample.text.len() as u64));
        group.bench_function("key", |bencher| bencher.iter(|| sample.key().expect("it can be read")));
        group.bench_function("canonical form", |bencher| {
            bencher.iter(|| {
                let arguments = Arguments::read(black_box(&sample.text), &Limits::default()).expect("it can be read");
                sample.shape.normalise(&arguments).expect("it has what identifies it")
            });
        });
    }
}

fn records(criterion: &mut Criterion) {
    let base: Base = decode(RECORD).expect("it is a record");
    let mut group = criterion.benchmark_group("record");
    group.throughput(Throughput::Bytes(RECORD.len() as u64));
    group.bench_function("encode", |bencher| bencher.iter(|| encode(black_box(&base))));
    group.bench_function("decode", |bencher| bencher.iter(|| decode(black_box(RECORD))));
}

fn replays(criterion: &mut Criterion) {
    let bench = Bench::new(Length::Tiny, 1).expect("a runtime can be made");
    let (stage, run) = bench.runtime.block_on(replay::done()).expect("calls can be made");
    let mut calls = (0..).map(replay::again);
    criterion.bench_function("replay from memory", |bencher| {
        let next = || calls.next().expect("there is no end of them");
        let replay = |call| bench.runtime.block_on(stage.replay(&run, call)).expect("it is a replay");
        bencher.iter_batched(next, replay, BatchSize::SmallInput);
    });
}

criterion_group!(micro, keys, records, replays);
criterion_main!(micro);
