#include "jobs/report.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "io/file.h"
#include "kernels/core/check.h"

namespace tokenmill::jobs {
namespace {

/// Enough digits to be useful, few enough to be read; never NaN or infinity.
double rounded(double value) {
  if (!std::isfinite(value) || value == 0) return 0;
  const double scale = std::pow(10, 5 - std::floor(std::log10(std::fabs(value))));
  return std::round(value * scale) / scale;
}

double per_second(int64_t count, double seconds) {
  return seconds > 0 ? rounded(static_cast<double>(count) / seconds) : 0;
}

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
};

void emit(YAML::Emitter& out, const ReportSection& section) {
  out << YAML::BeginMap;
  for (const auto& [name, value] : section) {
    out << YAML::Key << name << YAML::Value;
    std::visit(EmitValue{out}, value);
  }
  out << YAML::EndMap;
}

ReportSection replica_section(const ReplicaReport& replica) {
  const GeneratorStats& stats = replica.status.stats;
  const double steps = static_cast<double>(stats.steps);
  return {{"rank", int64_t{replica.rank}},
          {"host", replica.host},
          {"rows", replica.status.rows_finished},
          {"failed", replica.status.rows_failed},
          {"deduplicated", stats.rows_deduplicated},
          {"prompt_tokens", stats.prompt_tokens},
          {"generation_tokens", stats.generation_tokens},
          {"steps", stats.steps},
          {"mean_running", steps > 0 ? rounded(static_cast<double>(stats.sum_running) / steps) : 0.0},
          {"kv_usage_peak", rounded(stats.kv_usage_peak)},
          {"run_s", rounded(replica.run_s)},
          {"busy_s", rounded(replica.status.busy_s)},
          {"step_s", rounded(stats.step_seconds)},
          {"plan_s", rounded(stats.plan_seconds)},
          {"peak_resident_bytes", replica.peak_resident_bytes}};
}

}  // namespace

GeneratorStats JobOutcome::totals() const {
  GeneratorStats sum;
  for (const ReplicaReport& replica : replicas) {
    const GeneratorStats& stats = replica.status.stats;
    sum.prompt_tokens += stats.prompt_tokens;
    sum.generation_tokens += stats.generation_tokens;
    sum.steps += stats.steps;
    sum.sum_running += stats.sum_running;
    sum.step_seconds += stats.step_seconds;
    sum.plan_seconds += stats.plan_seconds;
    sum.rows_deduplicated += stats.rows_deduplicated;
    sum.kv_usage_peak = std::max(sum.kv_usage_peak, stats.kv_usage_peak);
  }
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
  const auto [first, last] = std::minmax_element(replicas.begin(), replicas.end(),
                                                 [](const auto& a, const auto& b) { return a.run_s < b.run_s; });
  return last->run_s - first->run_s;
}

void write_run_report(const std::string& path, const std::vector<std::pair<std::string, ReportSection>>& sections,
                      const std::vector<std::string>& inputs, const JobOutcome& outcome) {
  const GeneratorStats totals = outcome.totals();
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
                   {"succeeded", outcome.rows - outcome.failed},
                   {"failed", outcome.failed},
                   {"deduplicated", totals.rows_deduplicated}});
  section("tokens", {{"prompt", totals.prompt_tokens}, {"generation", totals.generation_tokens}});
  section("seconds", {{"index", rounded(outcome.index_s)},
                      {"plan", rounded(outcome.plan_s)},
                      {"run", rounded(outcome.run_s)},
                      {"merge", rounded(outcome.merge_s)},
                      {"elapsed", rounded(outcome.elapsed_s)},
                      {"tail", rounded(outcome.tail_s())}});
  section("throughput", {{"rows_per_second", per_second(outcome.rows, outcome.run_s)},
                         {"prompt_tokens_per_second", per_second(totals.prompt_tokens, outcome.run_s)},
                         {"generation_tokens_per_second", per_second(totals.generation_tokens, outcome.run_s)},
                         {"dp_imbalance", rounded(outcome.dp_imbalance())}});
  out << YAML::Key << "replicas" << YAML::Value << YAML::BeginSeq;
  for (const ReplicaReport& replica : outcome.replicas) emit(out, replica_section(replica));
  out << YAML::EndSeq << YAML::EndMap;
  if (!out.good()) throw Error(ErrorKind::kInternal, "{}: {}", path, out.GetLastError());
  io::write_file_atomically(path, std::string(out.c_str(), out.size()) + "\n");
}

std::vector<ReplicaReport> gather_reports(const parallel::Comm& world, const ReplicaReport& mine) {
  struct Fixed {
    double run_s;
    int64_t peak_resident_bytes;
    ReplicaStatus status;
  };
  const Fixed fixed{mine.run_s, mine.peak_resident_bytes, mine.status};
  const std::string bytes = std::string(reinterpret_cast<const char*>(&fixed), sizeof fixed) + mine.host;
  std::vector<ReplicaReport> reports;
  for (const std::string& text : parallel::gather_bytes(world, bytes)) {
    Fixed one;
    TM_ASSERT(text.size() >= sizeof one);
    std::memcpy(&one, text.data(), sizeof one);
    reports.push_back({.rank = static_cast<int>(reports.size()),
                       .host = text.substr(sizeof one),
                       .run_s = one.run_s,
                       .peak_resident_bytes = one.peak_resident_bytes,
                       .status = one.status});
  }
  return reports;
}

}  // namespace tokenmill::jobs
