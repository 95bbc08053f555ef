#include "jobs/report.h"

#include <sys/resource.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "io/file.h"
#include "kernels/core/check.h"

namespace tokenmill::jobs {
namespace {

double per_second(int64_t count, double seconds) {
  return seconds > 0 ? rounded(static_cast<double>(count) / seconds) : 0;
}

void emit(YAML::Emitter& out, const ReportSection& section);

struct EmitValue {
  YAML::Emitter& out;
  void operator()(bool value) const { out << value; }
  void operator()(int64_t value) const { out << value; }
  void operator()(double value) const { out << value; }
  void operator()(const std::string& value) const { out << YAML::DoubleQuoted << value; }
  void operator()(const std::vector<std::string>& values) const {
    out << YAML::BeginSeq;
    for (const std::string& value : values) (*this)(value);
    out << YAML::EndSeq;
  }
  void operator()(const ReportSection& section) const {
    out << YAML::Flow;
    emit(out, section);
  }
  void operator()(const std::vector<ReportSection>& sections) const {
    out << YAML::BeginSeq;
    for (const ReportSection& section : sections) (*this)(section);
    out << YAML::EndSeq;
  }
};

void emit_members(YAML::Emitter& out, const ReportSection& section) {
  for (const auto& [name, value] : section) {
    out << YAML::Key << name << YAML::Value;
    std::visit(EmitValue{out}, value);
  }
}

void emit(YAML::Emitter& out, const ReportSection& section) {
  out << YAML::BeginMap;
  emit_members(out, section);
  out << YAML::EndMap;
}

double per_step(double sum, const GeneratorStats& stats) {
  return stats.steps > 0 ? rounded(sum / static_cast<double>(stats.steps)) : 0.0;
}

/// Host and device: where a replica's time went, or several replicas' together.
ReportSection time_section(const GeneratorStats& stats) {
  return {{"device_s", rounded(stats.device_s)},
          {"host_stall_s", rounded(stats.host_stall_s)},
          {"starved_s", rounded(stats.starved_s)},
          {"text_s", rounded(stats.text_s)},
          {"schedule_s", rounded(stats.schedule_s)}};
}

ReportSection cache_section(const GeneratorStats& stats) {
  return {{"kv_usage_peak", rounded(stats.kv_usage_peak)},
          {"prefix_cache_queries", stats.prefix_cache_queries},
          {"prefix_cache_hits", stats.prefix_cache_hits},
          {"prefix_cache_hit_rate", rounded(stats.prefix_hit_rate())},
          {"preemptions", stats.preemptions},
          {"recomputed_tokens", stats.recomputed_tokens},
          {"kv_waste", per_step(stats.sum_kv_waste, stats)},
          {"kv_shared_blocks", per_step(static_cast<double>(stats.sum_kv_shared_blocks), stats)}};
}

ReportSection journal_section(const JournalStats& stats, double run_s) {
  return {{"rows", stats.rows},
          {"bytes", stats.bytes},
          {"commits", stats.commits},
          {"commit_s", rounded(stats.commit_s)},
          {"cpu_s", rounded(stats.cpu_s)},
          {"blocked_s", rounded(stats.blocked_s)},
          {"share", rounded(stats.share(run_s))}};
}

/// One line a distribution: "ttft_s: {count: 3, mean: 0.5, ...}". Whole numbers stay whole.
void emit_distributions(YAML::Emitter& out, const Distributions& distributions) {
  out << YAML::Key << "distributions" << YAML::Value << YAML::BeginMap;
  for (const auto& [name, member] : kDistributions) {
    const Histogram& h = distributions.*member;
    const bool whole = std::string_view(name).ends_with("tokens");
    const auto figure = [&](double value) { return rounded(whole ? std::floor(value) : value); };
    out << YAML::Key << name << YAML::Value << YAML::Flow;
    emit(out, {{"count", h.count()},
               {"mean", rounded(h.mean())},
               {"p50", figure(h.quantile(0.5))},
               {"p90", figure(h.quantile(0.9))},
               {"p95", figure(h.quantile(0.95))},
               {"p99", figure(h.quantile(0.99))},
               {"max", rounded(h.max())}});
  }
  out << YAML::EndMap;
}

void append(ReportSection& section, ReportSection&& more) {
  section.insert(section.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

ReportSection replica_section(const ReplicaReport& replica) {
  const GeneratorStats& stats = replica.status.stats;
  ReportSection out = {{"rank", int64_t{replica.rank}},
                       {"host", replica.host},
                       {"rows", replica.status.rows_finished},
                       {"failed", replica.status.rows_failed},
                       {"deduplicated", stats.rows_deduplicated},
                       {"prompt_tokens", stats.prompt_tokens},
                       {"generation_tokens", stats.generation_tokens},
                       {"steps", stats.steps},
                       {"mean_running", per_step(static_cast<double>(stats.sum_running), stats)},
                       {"run_s", rounded(replica.run_s)},
                       {"tail_s", rounded(replica.status.tail_s)},
                       {"busy_s", rounded(replica.status.busy_s)},
                       {"step_s", rounded(stats.step_seconds)},
                       {"plan_s", rounded(stats.plan_seconds)},
                       {"peak_resident_bytes", replica.peak_resident_bytes}};
  append(out, time_section(stats));
  append(out, cache_section(stats));
  out.emplace_back("journal", journal_section(replica.journal, replica.run_s));
  return out;
}

}  // namespace

int64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

double rounded(double value) {
  if (!std::isfinite(value) || value == 0) return 0;
  const double scale = std::pow(10, 5 - std::floor(std::log10(std::fabs(value))));
  return std::round(value * scale) / scale;
}

GeneratorStats JobOutcome::totals() const {
  GeneratorStats sum;
  for (const ReplicaReport& replica : replicas) sum.add(replica.status.stats);
  return sum;
}

double JobOutcome::dp_imbalance() const {
  double longest = 0, sum = 0;
  for (const ReplicaReport& replica : replicas) {
    longest = std::max(longest, replica.status.busy_s);
    sum += replica.status.busy_s;
  }
  return sum > 0 ? longest * static_cast<double>(replicas.size()) / sum : 0;
}

double JobOutcome::tail_s() const {
  if (replicas.empty()) return 0;
  double first = replicas[0].run_s, last = 0;
  for (const ReplicaReport& replica : replicas) {
    first = std::min(first, replica.run_s - replica.status.tail_s);
    last = std::max(last, replica.run_s);
  }
  return last - first;
}

JobMetrics JobOutcome::metrics() const {
  std::vector<ReplicaStatus> statuses;
  std::vector<std::string> distributions;
  for (const ReplicaReport& replica : replicas) {
    statuses.push_back(replica.status);
    distributions.push_back(replica.distributions);
  }
  return job_metrics(statuses, distributions, rows, before, run_s);
}

void write_run_report(const std::string& path, const std::vector<std::pair<std::string, ReportSection>>& sections,
                      const std::vector<std::string>& inputs, const JobOutcome& outcome) {
  const JobMetrics metrics = outcome.metrics();
  const GeneratorStats& totals = metrics.stats;
  YAML::Emitter out;
  out.SetDoublePrecision(10);
  out << YAML::BeginMap;
  const auto section = [&](const std::string& name, const ReportSection& values) {
    out << YAML::Key << name << YAML::Value;
    emit(out, values);
  };
  for (const auto& [name, values] : sections) section(name, values);
  out << YAML::Key << "inputs" << YAML::Value;
  EmitValue{out}(inputs);
  section("rows", {{"total", outcome.rows},
                   {"done", outcome.done},
                   {"succeeded", outcome.done - outcome.failed},
                   {"failed", outcome.failed},
                   {"done_before", outcome.before.done},
                   {"saved_unfinished", outcome.saved},
                   {"deduplicated", totals.rows_deduplicated}});
  section("tokens", {{"prompt", totals.prompt_tokens}, {"generation", totals.generation_tokens}});
  section("seconds", {{"index", rounded(outcome.index_s)},
                      {"plan", rounded(outcome.plan_s)},
                      {"run", rounded(outcome.run_s)},
                      {"merge", rounded(outcome.merge_s)},
                      {"elapsed", rounded(outcome.elapsed_s)},
                      {"tail", rounded(outcome.tail_s())}});
  section("throughput", {{"rows_per_second", per_second(outcome.done - outcome.before.done, outcome.run_s)},
                         {"prompt_tokens_per_second", per_second(totals.prompt_tokens, outcome.run_s)},
                         {"generation_tokens_per_second", per_second(totals.generation_tokens, outcome.run_s)},
                         {"dp_imbalance", rounded(outcome.dp_imbalance())}});
  section("replica_seconds", time_section(totals));
  section("kv_cache", cache_section(totals));
  JournalStats journal;
  double run_s = 0;
  for (const ReplicaReport& replica : outcome.replicas) {
    journal.add(replica.journal);
    run_s += replica.run_s;
  }
  section("journal", journal_section(journal, run_s));
  emit_distributions(out, metrics.distributions);
  out << YAML::Key << "replicas" << YAML::Value << YAML::BeginSeq;
  for (const ReplicaReport& replica : outcome.replicas) {
    out << YAML::BeginMap;
    emit_members(out, replica_section(replica));
    if (outcome.replicas.size() > 1 && !replica.distributions.empty())
      emit_distributions(out, Distributions::deserialize(replica.distributions));
    out << YAML::EndMap;
  }
  out << YAML::EndSeq << YAML::EndMap;
  if (!out.good()) throw Error(ErrorKind::kInternal, "{}: {}", path, out.GetLastError());
  io::write_file_atomically(path, std::string(out.c_str(), out.size()) + "\n");
}

std::vector<ReplicaReport> gather_reports(const parallel::Comm& world, const std::vector<int>& leaders,
                                          const ReplicaReport& mine) {
  struct Fixed {
    double run_s;
    int64_t peak_resident_bytes;
    ReplicaStatus status;
    JournalStats journal;
  };
  const auto fixed = parallel::gather_values(world, Fixed{mine.run_s, mine.peak_resident_bytes, mine.status, mine.journal});
  std::vector<std::string> hosts = parallel::gather_bytes(world, mine.host);
  std::vector<std::string> distributions = parallel::gather_bytes(world, mine.distributions);
  std::vector<ReplicaReport> reports;
  for (const int leader : leaders) {
    const auto rank = static_cast<size_t>(leader);
    reports.push_back({.rank = leader,
                       .host = std::move(hosts[rank]),
                       .run_s = fixed[rank].run_s,
                       .peak_resident_bytes = fixed[rank].peak_resident_bytes,
                       .status = fixed[rank].status,
                       .journal = fixed[rank].journal,
                       .distributions = std::move(distributions[rank])});
  }
  return reports;
}

}  // namespace tokenmill::jobs
