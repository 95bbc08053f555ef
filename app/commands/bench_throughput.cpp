#include <fmt/format.h>

#include "app/bench/figures.h"
#include "app/bench/json_output.h"
#include "app/bench/load.h"
#include "app/build.h"
#include "app/commands/commands.h"
#include "app/exit_codes.h"
#include "app/iteration_log.h"
#include "app/ranks.h"
#include "app/version.h"
#include "engine/engine.h"
#include "io/json.h"
#include "kernels/core/clock.h"
#include "kernels/core/log.h"

namespace tokenmill::app {
namespace {

using io::JsonValue;

/// Which requests a rank runs: numbers begin, begin + stride, ... below end.
struct Share {
  int64_t begin, end, stride;
  bool warm_up = false;
};

/// Runs a share to the end; requests are made as the engine takes them, so that memory does not grow with their number.
/// Returns when the last one was made. Throws Error(kConfig) when one of them fails.
double run_requests(Engine& engine, const RunOptions& options, int64_t vocab_size, const Share& share,
                    const Clock& clock) {
  const int64_t held = 2 * options.max_num_seqs;  // a full batch and as many waiting, as in a job
  double last_made_s = clock.now_s();
  for (int64_t next = share.begin; next < share.end || !engine.idle();) {
    for (; next < share.end && engine.num_unfinished() < held; next += share.stride) {
      engine.submit(bench_request(next, options, vocab_size, share.warm_up));
      last_made_s = clock.now_s();
    }
    engine.step();
    for (const RequestOutput& output : engine.take_finished())
      if (output.error)
        throw Error(ErrorKind::kConfig, "request {} of {} tokens cannot run: {}", output.request_id,
                    output.num_prompt_tokens, output.error->message);
  }
  return last_made_s;
}

Distributions gathered(const Distributions& mine, const parallel::Comm& world) {
  Distributions all;
  for (const std::string& bytes : parallel::gather_bytes(world, mine.serialize()))
    all.merge(Distributions::deserialize(bytes));
  return all;
}

JsonValue report(const RunOptions& options, const Ranks& ranks, const Replica& replica,
                 std::vector<JsonValue::Member> figures) {
  const auto count = [](int64_t value) { return JsonValue::number(value); };
  std::vector<JsonValue::Member> startup;
  for (const auto& [name, seconds] : replica.startup_seconds) startup.emplace_back(name, figure(seconds));
  std::vector<JsonValue::Member> out = {{"model_id", JsonValue::string(options.model)}};
  out.insert(out.end(), std::make_move_iterator(figures.begin()), std::make_move_iterator(figures.end()));
  out.emplace_back("startup_seconds", JsonValue::object(std::move(startup)));
  out.emplace_back("world", JsonValue::object({{"tp", count(1)},
                                               {"pp", count(1)},
                                               {"ep", count(1)},
                                               {"dp", count(ranks.groups.grid.dp)},
                                               {"nodes", count(ranks.topology.num_nodes)}}));
  out.emplace_back("engine", JsonValue::object({{"version", JsonValue::string(kVersion)},
                                                {"dtype", JsonValue::string(std::string(to_string(replica.dtype)))},
                                                {"max_model_len", count(replica.max_model_len)},
                                                {"max_num_seqs", count(options.max_num_seqs)},
                                                {"max_num_batched_tokens", count(options.max_num_batched_tokens)}}));
  out.emplace_back("machine", JsonValue::object({{"device", JsonValue::string(replica.ops->describe())},
                                                 {"numerics", JsonValue::string(replica.ops->numerics())}}));
  return JsonValue::object(std::move(out));
}

void print_figures(const RunOptions& options, const JsonValue& f) {
  const auto figure = [&](const char* name) { return f.at(name).as_double(); };
  fmt::print(
      "{} requests of {} + {} tokens in {:.2f} s\n"
      "{:.3f} requests/s, {:.1f} tokens/s, {:.1f} output tokens/s, {:.1f} input tokens/s\n"
      "prefix cache hits {:.1f} %, TPOT median {:.1f} ms, p99 {:.1f} ms\n",
      options.bench.num_prompts, prompt_tokens_of(options.bench), options.bench.output_len, figure("elapsed_time"),
      figure("requests_per_second"), figure("tokens_per_second"), figure("output_tokens_per_second"),
      figure("input_tokens_per_second"), figure("prefix_cache_hit_rate") * 100, figure("median_tpot_ms"),
      figure("p99_tpot_ms"));
  std::fflush(stdout);
}

}  // namespace

int bench_throughput(RunOptions options, parallel::MpiSession& session) {
  const parallel::Comm& world = session.world();
  if (!options.max_model_len) options.max_model_len = prompt_tokens_of(options.bench) + options.bench.output_len;
  std::optional<JsonOutput> output;
  std::optional<IterationLog> iterations;
  parallel::agree_on(world, [&] {
    finish_options(options, "bench throughput", world.size());
    if (world.rank() == 0) output.emplace(options.bench.output_json);
    if (!options.iteration_log.empty()) iterations.emplace(options.iteration_log, world.rank(), world.size());
  });
  const Ranks ranks = join_ranks(options, world);
  options.cpu_isa = common_cpu_isa(options, world);
  const std::unique_ptr<Replica> replica =
      parallel::agree_on(world, [&] { return build_replica(options, ranks.share); });
  const int64_t vocab_size = replica->model->config().vocab_size;
  log::info("{} | {} | {} | {}", describe(ranks), replica->ops->describe(), to_string(replica->dtype),
            replica->memory.describe());
  Engine engine(*replica->runner, nullptr,
                {.scheduler = options.scheduler, .detokenize = false, .on_step = step_listener(iterations)});
  const SteadyClock clock;
  parallel::agree_on(world, [&] {
    run_requests(engine, options, vocab_size, {0, options.bench.num_warmups, 1, true}, clock);
  });
  engine.forget_distributions();
  const EngineStats before = engine.stats();
  const double start_s = clock.now_s();
  const Measured mine = parallel::agree_on(world, [&] {
    const double last_made_s =
        run_requests(engine, options, vocab_size, {world.rank(), options.bench.num_prompts, world.size()}, clock);
    const double end_s = clock.now_s();
    Measured measured = measured_between(before, engine.stats());
    measured.seconds = end_s - start_s;
    measured.tail_s = end_s - last_made_s;
    if (iterations) iterations->close();
    return measured;
  });
  const std::vector<Measured> all = parallel::gather_values(world, mine);
  const Distributions distributions = gathered(engine.distributions(), world);
  parallel::run_on_root(world, [&] {
    const JsonValue f = report(options, ranks, *replica, bench_figures(options.bench.num_prompts, all, distributions));
    print_figures(options, f);
    output->write(f);
  });
  return kExitDone;
}

}  // namespace tokenmill::app
