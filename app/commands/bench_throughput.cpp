#include <fmt/format.h>

#include "app/bench/figures.h"
#include "app/bench/json_output.h"
#include "app/bench/load.h"
#include "app/build.h"
#include "app/commands/commands.h"
#include "app/exit_codes.h"
#include "app/iteration_log.h"
#include "app/rank_figures.h"
#include "app/rank_map.h"
#include "app/ranks.h"
#include "app/version.h"
#include "engine/engine.h"
#include "io/json.h"
#include "kernels/core/clock.h"
#include "kernels/core/log.h"

namespace tokenmill::app {
namespace {

using io::JsonValue;

/// Which requests a replica runs: numbers begin, begin + stride, ... below end.
struct Share {
  int64_t begin, end, stride;
  int64_t repetition;
};

/// A request of the load cannot run: nothing is broken, the options ask for too much.
class RefusedRequest : public Error {
 public:
  using Error::Error;
};

/// Runs a share to the end; requests are made as the engine takes them, so that memory does not grow with their number.
/// Returns when the last one was made. Throws RefusedRequest.
double run_requests(Engine& engine, const RunOptions& options, int64_t vocab_size, const Share& share,
                    const Clock& clock) {
  const int64_t held = 2 * options.max_num_seqs;  // a full batch and as many waiting, as in a job
  double last_made_s = clock.now_s();
  for (int64_t next = share.begin; next < share.end || !engine.idle();) {
    for (; next < share.end && engine.num_unfinished() < held; next += share.stride) {
      engine.submit(bench_request(next, options, vocab_size, share.repetition));
      last_made_s = clock.now_s();
    }
    engine.step();
    for (const RequestOutput& output : engine.take_finished())
      if (output.error)
        throw RefusedRequest(ErrorKind::kConfig, "request {} of {} tokens cannot run: {}", output.request_id,
                             output.num_prompt_tokens, output.error->message);
  }
  return last_made_s;
}

Distributions gathered(const Distributions& mine, const parallel::Comm& leaders) {
  Distributions all;
  for (const std::string& bytes : parallel::gather_bytes(leaders, mine.serialize()))
    all.merge(Distributions::deserialize(bytes));
  return all;
}

JsonValue to_json(const jobs::ReportValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return JsonValue::boolean(*flag);
  if (const auto* whole = std::get_if<int64_t>(&value)) return JsonValue::number(*whole);
  if (const auto* number = std::get_if<double>(&value)) return figure(*number);
  if (const auto* text = std::get_if<std::string>(&value)) return JsonValue::string(*text);
  std::vector<JsonValue> items;
  if (const auto* texts = std::get_if<std::vector<std::string>>(&value))
    for (const std::string& text : *texts) items.push_back(JsonValue::string(text));
  if (const auto* sections = std::get_if<std::vector<jobs::ReportSection>>(&value))
    for (const jobs::ReportSection& section : *sections) items.push_back(to_json(jobs::ReportValue(section)));
  if (!std::holds_alternative<jobs::ReportSection>(value)) return JsonValue::array(std::move(items));
  std::vector<JsonValue::Member> members;
  for (const auto& [name, member] : std::get<jobs::ReportSection>(value)) members.emplace_back(name, to_json(member));
  return JsonValue::object(std::move(members));
}

/// all: by world rank.
JsonValue report(const RunOptions& options, const Ranks& ranks, const Replica& replica,
                 const std::vector<RankFigures>& all, const StepTotals& steps, std::vector<JsonValue::Member> figures) {
  const auto count = [](int64_t value) { return JsonValue::number(value); };
  std::vector<JsonValue::Member> startup;
  for (const auto& [name, seconds] : replica.startup_seconds) startup.emplace_back(name, figure(seconds));
  std::vector<JsonValue::Member> out = {{"model_id", JsonValue::string(options.model)}};
  out.insert(out.end(), std::make_move_iterator(figures.begin()), std::make_move_iterator(figures.end()));
  out.emplace_back("startup_seconds", JsonValue::object(std::move(startup)));
  out.emplace_back("world", JsonValue::object({{"tp", count(ranks.groups.grid.tp)},
                                               {"pp", count(ranks.groups.grid.pp)},
                                               {"ep", count(1)},
                                               {"dp", count(ranks.groups.grid.dp)},
                                               {"nodes", count(ranks.topology.num_nodes)}}));
  out.emplace_back("engine",
                   JsonValue::object({{"version", JsonValue::string(kVersion)},
                                      {"dtype", JsonValue::string(std::string(to_string(replica.choice.dtype)))},
                                      {"max_model_len", count(replica.choice.max_model_len)},
                                      {"max_num_seqs", count(options.max_num_seqs)},
                                      {"max_num_batched_tokens", count(options.max_num_batched_tokens)}}));
  out.emplace_back("layout", to_json(layout_section(options, ranks, all)));
  out.emplace_back("loading", to_json(loading_section(options, ranks, all)));
  if (const auto section = communication_section(ranks, all, steps); !section.empty())
    out.emplace_back("communication", to_json(section));
  out.emplace_back("machine", JsonValue::object({{"device", JsonValue::string(replica.ops->describe())},
                                                 {"numerics", JsonValue::string(replica.ops->numerics())}}));
  return JsonValue::object(std::move(out));
}

/// Of several repetitions: how far they are apart.
void print_spread(const RunOptions& options, const JsonValue& f) {
  if (options.bench.repetitions == 1) return;
  const JsonValue& rate = f.at("spread").at("output_tokens_per_second");
  fmt::print(
      "the one of median length of {} runs; output tokens/s from {:.1f} to {:.1f}, median {:.1f}, stddev {:.1f}\n",
      options.bench.repetitions, rate.at("min").as_double(), rate.at("max").as_double(), rate.at("median").as_double(),
      rate.at("stddev").as_double());
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
  print_spread(options, f);
  std::fflush(stdout);
}

/// One repetition of the load.
struct Repetition {
  std::vector<Measured> by_replica;
  Distributions distributions;
};

/// What the replicas measured.
struct Figures {
  std::vector<Repetition> repetitions;
  StepTotals steps;  ///< with the warm-up
};

/// Collective over the leaders: the warm-up, then the measured load as often as asked for. Throws AgreedError when a
/// request is refused; any other error is this rank's alone and ends the job, because its followers may be inside a
/// step.
Figures lead(const RunOptions& options, Replica& replica, const parallel::Comm& leaders,
             std::optional<IterationLog>& iterations) {
  const int64_t vocab_size = replica.choice.checkpoint->config().vocab_size;
  const SteadyClock clock;
  Engine engine(replica.steps(), nullptr,
                {.scheduler = options.scheduler, .detokenize = false, .on_step = step_listener(iterations)});
  const auto run_agreed = [&](const Share& share) {
    double last_made_s = 0;
    std::optional<Error> refused;
    try {
      last_made_s = run_requests(engine, options, vocab_size, share, clock);
    } catch (const RefusedRequest& error) {
      refused = error;
    }
    const double end_s = clock.now_s();
    parallel::agree(leaders, refused);
    return std::pair(last_made_s, end_s);
  };
  run_agreed({0, options.bench.num_warmups, 1, kWarmUp});
  Figures figures;
  for (int64_t repetition = 0; repetition < options.bench.repetitions; ++repetition) {
    engine.forget_distributions();
    const EngineStats before = engine.stats();
    const double start_s = clock.now_s();
    const auto [last_made_s, end_s] =
        run_agreed({leaders.rank(), options.bench.num_prompts, leaders.size(), repetition});
    Measured mine = measured_between(before, engine.stats());
    mine.seconds = end_s - start_s;
    mine.tail_s = end_s - last_made_s;
    figures.repetitions.push_back({parallel::gather_values(leaders, mine), gathered(engine.distributions(), leaders)});
  }
  const EngineStats& stats = engine.stats();
  for (const StepTotals& theirs : parallel::gather_values(leaders, StepTotals{stats.times.device_s, stats.num_steps})) {
    figures.steps.device_s += theirs.device_s;
    figures.steps.num_steps += theirs.num_steps;
  }
  return figures;
}

}  // namespace

int bench_throughput(RunOptions options, parallel::MpiSession& session) {
  const parallel::Comm& world = session.world();
  if (!options.max_model_len) options.max_model_len = prompt_tokens_of(options.bench) + options.bench.output_len;
  parallel::agree_on(world, [&] { finish_options(options, "bench throughput", world.size()); });
  const auto output_len = static_cast<double>(options.bench.output_len);
  options.sampled_share = output_len / (static_cast<double>(prompt_tokens_of(options.bench)) + output_len);
  const Ranks ranks = join_ranks(options, world);
  std::optional<JsonOutput> output;
  std::optional<IterationLog> iterations;
  parallel::agree_on(world, [&] {
    if (world.rank() == 0) output.emplace(options.bench.output_json);
    if (!options.iteration_log.empty() && ranks.leads())
      iterations.emplace(options.iteration_log, ranks.groups.place.dp_rank, ranks.groups.grid.dp);
  });
  options.cpu_isa = common_cpu_isa(options, world);
  const std::unique_ptr<Replica> replica = plan_replica(options, ranks, world);
  load_replica(options, *replica, ranks, world);
  log::info("{} | {} | {} | {}", describe_grid(ranks.topology, ranks.groups.grid), replica->ops->describe(),
            to_string(replica->choice.dtype), replica->plan.memory.describe());
  Figures figures;
  std::optional<Error> refused;
  if (ranks.leads()) {
    try {
      figures = lead(options, *replica, ranks.groups.dp, iterations);
    } catch (const parallel::AgreedError& error) {
      refused = error;
    }
    replica->stop_followers();
  } else {
    replica->follow();
  }
  parallel::agree(world, refused);
  parallel::agree_on(world, [&] {
    if (iterations) iterations->close();
  });
  const std::vector<RankFigures> all = parallel::gather_values(world, rank_figures(options, *replica, ranks));
  parallel::run_on_root(world, [&] {
    std::vector<std::vector<JsonValue::Member>> repetitions;
    for (const Repetition& r : figures.repetitions)
      repetitions.push_back(bench_figures(options.bench.num_prompts, world.size(), r.by_replica, r.distributions));
    const JsonValue f =
        report(options, ranks, *replica, all, figures.steps, repetition_figures(std::move(repetitions)));
    print_figures(options, f);
    output->write(f);
  });
  return kExitDone;
}

}  // namespace tokenmill::app
