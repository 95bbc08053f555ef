#include <fmt/format.h>
#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "app/bench/json_output.h"
#include "app/commands/commands.h"
#include "app/exit_codes.h"
#include "app/model_choice.h"
#include "app/version.h"
#include "io/json.h"
#include "kernels/bench/bench.h"
#include "kernels/device_choice.h"
#include "parallel/topology.h"

namespace tokenmill::app {
namespace {

using io::JsonValue;

constexpr std::array<std::string_view, 4> kFamilies = {"linear", "attention", "sampling", "parts"};

bool matches(std::string_view family, const std::string& filter) { return family.find(filter) != family.npos; }

void check_filter(const std::string& filter) {
  if (std::any_of(kFamilies.begin(), kFamilies.end(), [&](auto family) { return matches(family, filter); })) return;
  throw Error(ErrorKind::kConfig, "--filter {} matches no operation; there are {}", filter, fmt::join(kFamilies, ", "));
}

void print_limits(const bench::Limits& l, const std::string& device, std::ostream& out) {
  const std::string core = l.f32_gflops_core > 0 ? fmt::format("{:.0f} GFLOP/s on one core, ", l.f32_gflops_core) : "";
  fmt::print(out,
             "{}\nlimits measured now: f32 {}{:.0f} GFLOP/s in all; bf16 {:.0f}; read {:.1f} GB/s, copy {:.1f} GB/s\n\n"
             "{:<18}{:<44}{:<9}{:>10}{:>10}{:>8}{:>8}{:>8}\n",
             device, core, l.f32_gflops_team, l.bf16_gflops_team, l.read_gbps, l.copy_gbps, "operation", "shape",
             "dtype", "ms", "GFLOP/s", "share", "GB/s", "share");
  out.flush();
}

void print_result(const bench::Result& r, std::ostream& out) {
  fmt::print(out, "{:<18}{:<44}{:<9}{:>10.4f}{:>10.1f}{:>7.0f}%{:>8.1f}{:>7.0f}%\n", r.family, r.shape,
             to_string(r.dtype), r.ms, r.gflops, r.compute_share * 100, r.gbps, r.memory_share * 100);
  out.flush();
}

JsonValue json_of(const bench::Result& r) {
  return JsonValue::object({{"operation", JsonValue::string(r.family)},
                            {"shape", JsonValue::string(r.shape)},
                            {"dtype", JsonValue::string(std::string(to_string(r.dtype)))},
                            {"repeats", JsonValue::number(r.repeats)},
                            {"ms", JsonValue::number(r.ms)},
                            {"median_ms", JsonValue::number(r.median_ms)},
                            {"gflops", JsonValue::number(r.gflops)},
                            {"compute_share", JsonValue::number(r.compute_share)},
                            {"gbps", JsonValue::number(r.gbps)},
                            {"memory_share", JsonValue::number(r.memory_share)},
                            {"max_error", JsonValue::number(r.max_error)}});
}

JsonValue json_of(const bench::Limits& l) {
  return JsonValue::object({{"threads", JsonValue::number(int64_t{l.num_threads})},
                            {"f32_gflops_core", JsonValue::number(l.f32_gflops_core)},
                            {"f32_gflops", JsonValue::number(l.f32_gflops_team)},
                            {"bf16_gflops", JsonValue::number(l.bf16_gflops_team)},
                            {"read_gbps", JsonValue::number(l.read_gbps)},
                            {"copy_gbps", JsonValue::number(l.copy_gbps)}});
}

}  // namespace

int bench_kernels(RunOptions options, std::ostream& out) {
  finish_options(options, "bench kernels", 1);
  check_filter(options.bench.kernels);
  JsonOutput output(options.bench.output_json);
  const OpsOptions ops_options = ops_options_of(options, parallel::CpuSet::of_this_process().count());
  const std::unique_ptr<Ops> ops = make_ops(choose_device(options.device, 0), ops_options);
  const bench::Limits limits = bench::measure_limits(*ops, ops_options);
  const DeviceKind kind = ops->device().kind;
  print_limits(limits, ops->describe(), out);
  std::vector<JsonValue> results;
  const auto wanted = [&](std::string_view family) { return matches(family, options.bench.kernels); };
  const auto take = [&](const bench::Result& result) {
    print_result(result, out);
    results.push_back(json_of(result));
  };
  if (wanted("linear"))
    for (const bench::LinearShape& shape : bench::default_linear_shapes(kind)) take(bench_linear(*ops, limits, shape));
  if (wanted("attention"))
    for (const bench::AttentionShape& shape : bench::default_attention_shapes(kind))
      take(bench_attention(*ops, limits, shape));
  if (wanted("sampling"))
    for (const bench::SamplingShape& shape : bench::default_sampling_shapes())
      take(bench_sampling(*ops, limits, shape));
  if (wanted("parts"))
    for (const bench::PartsShape& shape : bench::default_parts_shapes()) take(bench_parts(*ops, limits, shape));
  output.write(JsonValue::object({{"version", JsonValue::string(kVersion)},
                                  {"device", JsonValue::string(ops->describe())},
                                  {"limits", json_of(limits)},
                                  {"results", JsonValue::array(std::move(results))}}));
  return kExitDone;
}

}  // namespace tokenmill::app
