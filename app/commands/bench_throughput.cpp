#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/build.h"
#include "app/commands/commands.h"
#include "app/exit_codes.h"
#include "app/progress_view.h"
#include "app/ranks.h"
#include "app/version.h"
#include "engine/engine.h"
#include "io/file.h"
#include "io/json.h"
#include "kernels/core/clock.h"
#include "kernels/core/log.h"
#include "kernels/random.h"

namespace tokenmill::app {
namespace {

using io::JsonValue;
constexpr int64_t kWarmUpPrompts = 4;  // touches every page and primitive once; not measured

/// Random ids, the same for a request whatever the ranks; greedy, end-of-sequence ignored: every request runs its
/// length.
Request random_request(int64_t number, const RunOptions& options, int64_t vocab_size) {
  Request request;
  request.request_id = number;
  request.random_key = options.seed;
  for (int64_t i = 0; i < options.bench.input_len; ++i) {
    const double u = uniform(options.seed ^ 0x62656e6368ull, number * options.bench.input_len + i);
    request.prompt_token_ids.push_back(static_cast<int32_t>(u * static_cast<double>(vocab_size)));
  }
  request.sampling = normalized({.temperature = 0, .max_tokens = options.bench.output_len, .ignore_eos = true});
  return request;
}

/// Runs requests [begin, end) with this stride to the end; fails when one of them fails.
void run_requests(Engine& engine, const RunOptions& options, int64_t vocab_size, int64_t begin, int64_t end,
                  int64_t stride) {
  for (int64_t i = begin; i < end; i += stride) engine.submit(random_request(i, options, vocab_size));
  while (!engine.idle()) engine.step();
  for (const RequestOutput& output : engine.take_finished())
    if (output.error)
      throw Error(ErrorKind::kConfig, "request {} of {} tokens cannot run: {}", output.request_id,
                  options.bench.input_len, output.error->message);
}

/// What one rank measured, as text between ranks.
struct Measured {
  double seconds = 0;
  int64_t input_tokens = 0, output_tokens = 0, steps = 0, sum_running = 0, preemptions = 0;
  double kv_peak = 0;
};

std::vector<Measured> gather(const Measured& mine, const parallel::Comm& world) {
  const std::string bytes(reinterpret_cast<const char*>(&mine), sizeof mine);
  std::vector<Measured> all;
  for (const std::string& other : parallel::gather_bytes(world, bytes)) {
    Measured m;
    std::copy_n(other.data(), sizeof m, reinterpret_cast<char*>(&m));
    all.push_back(m);
  }
  return all;
}

JsonValue round_figure(double value) {
  if (!std::isfinite(value)) return {};
  const double scale = value == 0 ? 1 : std::pow(10, 5 - std::floor(std::log10(std::fabs(value))));
  return JsonValue::number(std::round(value * scale) / scale);
}

JsonValue figures(const RunOptions& options, const Ranks& ranks, const Replica& replica,
                  const std::vector<Measured>& all) {
  double elapsed = 0, sum = 0, kv_peak = 0;
  int64_t input = 0, output = 0, steps = 0, running = 0, preemptions = 0;
  for (const Measured& m : all) {
    elapsed = std::max(elapsed, m.seconds);
    sum += m.seconds;
    kv_peak = std::max(kv_peak, m.kv_peak);
    input += m.input_tokens;
    output += m.output_tokens;
    steps += m.steps;
    running += m.sum_running;
    preemptions += m.preemptions;
  }
  const auto per_second = [&](int64_t count) { return round_figure(static_cast<double>(count) / elapsed); };
  const auto count = [](int64_t value) { return JsonValue::number(value); };
  std::vector<JsonValue::Member> startup;
  for (const auto& [name, seconds] : replica.startup_seconds) startup.emplace_back(name, round_figure(seconds));
  return JsonValue::object(
      {{"model_id", JsonValue::string(options.model)},
       {"elapsed_time", round_figure(elapsed)},
       {"num_requests", count(options.bench.num_prompts)},
       {"total_input_tokens", count(input)},
       {"total_output_tokens", count(output)},
       {"total_num_tokens", count(input + output)},
       {"requests_per_second", per_second(options.bench.num_prompts)},
       {"tokens_per_second", per_second(input + output)},
       {"output_tokens_per_second", per_second(output)},
       {"input_tokens_per_second", per_second(input)},
       {"output_tokens_per_second_per_rank", round_figure(static_cast<double>(output) / elapsed / double(all.size()))},
       {"num_preemptions", count(preemptions)},
       {"kv_cache_usage_peak", round_figure(kv_peak)},
       {"mean_running", round_figure(static_cast<double>(running) / static_cast<double>(std::max<int64_t>(1, steps)))},
       {"dp_imbalance", round_figure(elapsed * static_cast<double>(all.size()) / sum)},
       {"startup_seconds", JsonValue::object(std::move(startup))},
       {"world", JsonValue::object({{"tp", count(1)},
                                    {"pp", count(1)},
                                    {"ep", count(1)},
                                    {"dp", count(ranks.groups.grid.dp)},
                                    {"nodes", count(ranks.topology.num_nodes)}})},
       {"engine", JsonValue::object({{"version", JsonValue::string(kVersion)},
                                     {"dtype", JsonValue::string(std::string(to_string(replica.dtype)))},
                                     {"max_model_len", count(replica.max_model_len)},
                                     {"max_num_seqs", count(options.max_num_seqs)},
                                     {"max_num_batched_tokens", count(options.max_num_batched_tokens)}})},
       {"machine", JsonValue::object({{"device", JsonValue::string(replica.ops->describe())},
                                      {"numerics", JsonValue::string(replica.ops->numerics())}})}});
}

void print_figures(const RunOptions& options, const JsonValue& f) {
  const auto figure = [&](const char* name) { return f.at(name).as_double(); };
  std::fputs(fmt::format("{} requests of {} + {} tokens in {:.2f} s\n"
                         "{:.3f} requests/s, {:.1f} tokens/s, {:.1f} output tokens/s, {:.1f} input tokens/s\n",
                         options.bench.num_prompts, options.bench.input_len, options.bench.output_len,
                         figure("elapsed_time"), figure("requests_per_second"), figure("tokens_per_second"),
                         figure("output_tokens_per_second"), figure("input_tokens_per_second"))
                 .c_str(),
             stdout);
  std::fflush(stdout);
  if (!options.bench.output_json.empty()) io::write_file_atomically(options.bench.output_json, io::to_json(f) + "\n");
}

}  // namespace

int bench_throughput(RunOptions options, parallel::MpiSession& session) {
  const parallel::Comm& world = session.world();
  if (!options.max_model_len) options.max_model_len = options.bench.input_len + options.bench.output_len;
  parallel::agree_on(world, [&] { finish_options(options, "bench throughput", world.size()); });
  const Ranks ranks = join_ranks(options, world);
  options.cpu_isa = common_cpu_isa(options, world);
  const std::unique_ptr<Replica> replica =
      parallel::agree_on(world, [&] { return build_replica(options, ranks.share); });
  const int64_t vocab_size = replica->model->config().vocab_size;
  log::info("{} | {} | {} | {}", describe(ranks), replica->ops->describe(), to_string(replica->dtype),
            replica->memory.describe());
  Engine engine(*replica->runner, nullptr, {.scheduler = options.scheduler, .detokenize = false});
  const SteadyClock clock;
  Measured mine;
  const int64_t num_prompts = options.bench.num_prompts;
  parallel::agree_on(world, [&] {  // prompts of its own: the measured ones must not be in the prefix cache
    run_requests(engine, options, vocab_size, num_prompts, num_prompts + kWarmUpPrompts, 1);
  });
  const EngineStats before = engine.stats();
  const double start_s = clock.now_s();
  parallel::agree_on(world, [&] {
    run_requests(engine, options, vocab_size, world.rank(), num_prompts, world.size());
    mine.seconds = clock.now_s() - start_s;
  });
  const EngineStats& after = engine.stats();
  mine.input_tokens = after.num_prompt_tokens - before.num_prompt_tokens;
  mine.output_tokens = after.num_generation_tokens - before.num_generation_tokens;
  mine.steps = after.num_steps - before.num_steps;
  mine.sum_running = after.sum_running - before.sum_running;
  mine.preemptions = after.num_preemptions - before.num_preemptions;
  mine.kv_peak =
      static_cast<double>(after.kv_blocks_used_peak) / static_cast<double>(std::max<int64_t>(1, after.kv_blocks_total));
  const std::vector<Measured> all = gather(mine, world);
  parallel::run_on_root(world, [&] { print_figures(options, figures(options, ranks, *replica, all)); });
  return kExitDone;
}

}  // namespace tokenmill::app
