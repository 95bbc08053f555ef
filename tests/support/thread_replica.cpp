#include "tests/support/thread_replica.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>

#include "engine/model_runner.h"
#include "engine/models/checkpoint.h"
#include "engine/models/loader.h"
#include "engine/replica.h"
#include "kernels/core/error.h"
#include "tests/support/thread_group.h"

namespace tokenmill::test {
namespace {

/// Messages between threads.
class Mailbox {
 public:
  void put(std::span<const std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    messages_.emplace_back(bytes.begin(), bytes.end());
    arrived_.notify_one();
  }
  std::vector<std::byte> take() {
    std::unique_lock lock(mutex_);
    if (!arrived_.wait_for(lock, std::chrono::seconds(20), [&] { return !messages_.empty(); }))
      throw Error(ErrorKind::kInternal, "no message came in 20 s");
    std::vector<std::byte> bytes = std::move(messages_.front());
    messages_.pop_front();
    return bytes;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::vector<std::byte>> messages_;
};

class ThreadPlanChannel final : public PlanChannel {
 public:
  ThreadPlanChannel(std::vector<Mailbox>& boxes, int rank) : boxes_(boxes), rank_(rank) {}
  void send(std::span<const std::byte> bytes) override {
    for (size_t i = 1; i < boxes_.size(); ++i) boxes_[i].put(bytes);
  }
  std::vector<std::byte> receive() override { return boxes_[static_cast<size_t>(rank_)].take(); }

 private:
  std::vector<Mailbox>& boxes_;
  int rank_;
};

class ThreadResultChannel final : public ResultChannel {
 public:
  explicit ThreadResultChannel(Mailbox& box) : box_(box) {}
  void send(std::span<const std::byte> bytes) override { box_.put(bytes); }
  std::vector<std::byte> receive() override { return box_.take(); }

 private:
  Mailbox& box_;
};

/// Counts the tokens of what is launched.
class CountingRunner final : public Runner {
 public:
  explicit CountingRunner(Runner& inner) : inner_(inner) {}
  const RunnerLimits& limits() const override { return inner_.limits(); }
  Ticket launch(const StepPlan& plan) override {
    ++num_steps;
    num_tokens += plan.num_tokens();
    num_rows += plan.num_logits_rows();
    return inner_.launch(plan);
  }
  StepResult collect(Ticket ticket) override { return inner_.collect(ticket); }
  int64_t num_steps = 0, num_tokens = 0, num_rows = 0;

 private:
  Runner& inner_;
};

RunnerLimits limits_of(const ThreadReplicaOptions& options, const Decoder& model) {
  RunnerLimits limits;
  limits.kv_groups = model.kv_specs(options.dtype, 16);
  limits.num_blocks.assign(limits.kv_groups.size(), options.num_blocks);
  limits.max_num_seqs = limits.max_logits_rows = options.max_num_seqs;
  limits.max_num_batched_tokens = options.max_num_batched_tokens;
  limits.max_scored_rows = 32;
  limits.max_model_len = options.max_model_len;
  limits.vocab_size = limits.max_logprobs = model.config().vocab_size;
  limits.max_steps_in_flight = limits.num_stages = options.grid.pp_size;
  return limits;
}

/// The requests through an engine on the leader's thread.
void lead(const ThreadReplicaOptions& options, Runner& runner, const std::vector<Request>& requests,
          ThreadReplicaRun& run) {
  CountingRunner counted(runner);
  Engine engine(counted, nullptr, {.scheduler = options.scheduler, .detokenize = false});
  for (const Request& request : requests) engine.submit(request);
  while (engine.step()) {
  }
  for (RequestOutput& output : engine.take_finished())
    run.outputs.at(static_cast<size_t>(output.request_id)) = std::move(output);
  run.num_steps = counted.num_steps;
  run.num_step_tokens = counted.num_tokens;
  run.num_logits_rows = counted.num_rows;
  run.num_preemptions = engine.stats().num_preemptions;
}

}  // namespace

ThreadReplicaRun run_thread_replica(const ThreadReplicaOptions& options, const std::vector<Request>& requests) {
  const int tp_size = options.grid.tp_size, pp_size = options.grid.pp_size, size = tp_size * pp_size;
  const Checkpoint checkpoint(options.model);
  const ModelConfig& config = checkpoint.config();
  check_grid(options.grid, config, options.model);
  const std::vector<Range> stages =
      options.stages.empty() ? balance_stages(config.num_layers, pp_size, {}) : options.stages;
  ThreadGroup all(size);
  std::deque<ThreadGroup> tp_groups, pp_groups;
  for (int stage = 0; stage < pp_size; ++stage) tp_groups.emplace_back(tp_size);
  for (int rank = 0; rank < tp_size; ++rank) pp_groups.emplace_back(pp_size);
  std::vector<Mailbox> plan_boxes(static_cast<size_t>(size));
  Mailbox result_box;
  ThreadReplicaRun run;
  run.outputs.resize(requests.size());
  run.ranks.resize(static_cast<size_t>(size));
  all.run([&](int rank) {
    ModelShard shard{.grid = options.grid, .tp_rank = rank % tp_size, .pp_rank = rank / tp_size, .layers = {}};
    shard.layers = stages[static_cast<size_t>(shard.pp_rank)];
    const auto ops = make_ops({}, {.num_threads = 1});
    WeightBuilder builder(*ops, checkpoint.weights(), options.dtype);
    Decoder model(config, shard, options.max_model_len, builder);
    model.overlap_from(options.overlap_from);
    const Buffer weights = ops->memory().allocate(builder.num_bytes());
    load_weights(builder.place(weights.bytes()));
    const auto tp = tp_groups[static_cast<size_t>(shard.pp_rank)].communicator(shard.tp_rank, ops->stream());
    const auto pp = pp_groups[static_cast<size_t>(shard.tp_rank)].communicator(shard.pp_rank, ops->stream());
    ModelRunner local(*ops, model, options.dtype, limits_of(options, model), {tp.get(), pp.get()});
    ThreadPlanChannel plans(plan_boxes, rank);
    ThreadResultChannel results(result_box);
    if (size == 1) {
      lead(options, local, requests, run);
    } else if (rank == 0) {
      LeaderRunner leader(local, plans, pp_size > 1 ? &results : nullptr);
      lead(options, leader, requests, run);
      leader.stop();
    } else {
      const bool reports = pp_size > 1 && shard.is_last_stage() && shard.tp_rank == 0;
      follow(local, plans, reports ? &results : nullptr);
    }
    ThreadRank& mine = run.ranks[static_cast<size_t>(rank)];
    mine.weight_bytes = builder.num_bytes();
    for (const KvSpec& spec : local.limits().kv_groups) mine.kv_block_bytes += ops->kv_block_bytes(spec);
    mine.tp = tp->counts();
    mine.pp = pp->counts();
  });
  return run;
}

}  // namespace tokenmill::test
