#include "tests/engine/models/vocabulary_ranks.h"

#include <doctest/doctest.h>

#include "tests/support/thread_group.h"

namespace tokenmill::test {
namespace {

const std::string kTable = "model.embed_tokens.weight", kHead = "lm_head.weight";

}  // namespace

Ends::Ends(int64_t vocab, int64_t hidden, int64_t rows, DType dtype)
    : table(dtype, {vocab, hidden}), head(dtype, {vocab, hidden}), normed(dtype, {rows, hidden}) {
  Random random(static_cast<uint64_t>(vocab));
  table.fill_random(random);
  head.fill_random(random);
  normed.fill_random(random, -3, 3);
  config.vocab_size = vocab;
  config.hidden_size = hidden;
}

Rank::Rank(const Ends& ends, Ops& ops, parallel::Communicator& tp, int64_t max_rows) : ops_(ops), tp_(tp), ends_(ends) {
  for (const auto& [name, tensor] : {std::pair{&kTable, &ends.table}, std::pair{&kHead, &ends.head}}) {
    WeightSource source;
    source.name = source.stored_name = *name;
    source.format = ends.dtype() == DType::kF32 ? WeightFormat::kF32 : WeightFormat::kBF16;
    source.shape = {ends.vocab(), ends.config.hidden_size};
    catalog_.add(source);
  }
  shard_.grid.tp_size = tp.size();
  shard_.tp_rank = tp.rank();
  builder_ = std::make_unique<WeightBuilder>(ops, catalog_, ends.dtype());
  vocabulary_ = std::make_unique<VocabularyShard>(ends.config, shard_, *builder_);
  weights_ = ops.memory().allocate(builder_->num_bytes());
  const WeightPlan plan = builder_->place(weights_.bytes());
  for (const WeightPlan::Entry& entry : plan.entries) {
    push(*entry.sink, entry.part, (entry.source->name == kTable ? ends.table : ends.head).bytes());
    entry.sink->finish();
  }
  vocabulary_->bind(tp);
  Carver counter(nullptr, true);
  carve_head(ends.config, shard_, max_rows, counter);
  activations_ = ops.memory().allocate(counter.num_bytes());
  Carver carver(activations_.data(), true);
  head_ = carve_head(ends.config, shard_, max_rows, carver);
}

void Rank::choose(SamplerRows& rows, int64_t begin, int64_t shortlist, int64_t width) {
  StepTensors step = rows.step();
  step.rows.shortlist = shortlist;
  HeadOutput out{.picked = rows.picked(), .sampled = {}, .scored = {}};
  if (width >= 0) {
    step.sampled = rows.wanted();
    out.sampled = rows.make_report(width);
  }
  const int64_t count = step.rows.tokens.num_elements();
  vocabulary_->choose(ops_, ends_.normed.view().slice_rows(begin, count), step, rows.tables(), head_, out);
  ops_.stream().synchronize();
}

void Rank::score(SamplerRows& rows, int64_t width) {
  vocabulary_->score(ops_, ends_.normed, rows.wanted(), rows.tables(), head_, rows.make_report(width));
  ops_.stream().synchronize();
}

void on_ranks(const Ends& ends, int tp, int64_t max_rows, const std::function<void(Rank&)>& body) {
  ThreadGroup group(tp);
  group.run([&](int r) {
    const auto ops = cpu_backend("auto", 1);
    const auto communicator = group.communicator(r, ops->stream());
    Rank rank(ends, *ops, *communicator, max_rows);
    body(rank);
  });
}

Bytes result_of(const Ends& ends, int tp, const std::function<void(Rank&, Bytes&)>& body) {
  std::vector<Bytes> results(static_cast<size_t>(tp));
  on_ranks(ends, tp, ends.rows(), [&](Rank& rank) { body(rank, results[static_cast<size_t>(rank.tp().rank())]); });
  for (const Bytes& result : results) CHECK(result == results[0]);
  return results[0];
}

}  // namespace tokenmill::test
