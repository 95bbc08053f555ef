#include "app/report_sections.h"

#include <fmt/ranges.h>

#include "app/version.h"

namespace tokenmill::app {
namespace {

using jobs::ReportSection;

jobs::ReportValue report_value(const io::JsonValue& value) {
  if (value.is_bool()) return value.as_bool();
  if (value.is_string()) return value.as_string();
  if (value.is_number()) {
    if (value.fits_int64()) return value.as_int64();
    return value.as_double();
  }
  if (!value.is_array()) return io::to_json(value);
  std::vector<std::string> items;
  for (const io::JsonValue& item : value.items())
    items.push_back(item.is_string() ? item.as_string() : io::to_json(item));
  return items;
}

/// How many steps were padded to each size.
ReportSection sizes_section(const std::vector<StepGraphFigures::Size>& sizes) {
  ReportSection out;
  for (const auto& [size, num_steps] : sizes) {
    if (num_steps > 0) out.emplace_back(std::to_string(size), num_steps);
  }
  return out;
}

/// Empty where nothing was recorded.
ReportSection step_graphs_section(const StepGraphFigures& figures) {
  if (figures.layers.empty()) return {};
  return {{"graphs", static_cast<int64_t>(figures.layers.size() + figures.heads.size())},
          {"largest", figures.layers.back().size},
          {"record_s", figures.record_s},
          {"memory_bytes", figures.memory_bytes},
          {"steps_by_tokens", sizes_section(figures.layers)},
          {"steps_by_rows", sizes_section(figures.heads)},
          {"eager_layers", figures.num_eager_layers},
          {"eager_heads", figures.num_eager_heads}};
}

}  // namespace

ReportSection sampling_section(const io::JsonValue& sampling) {
  ReportSection out;
  for (const auto& [name, value] : sampling.members()) out.emplace_back(name, report_value(value));
  return out;
}

ReportSection configuration_section(const RunOptions& options, const ModelChoice& choice, Bearing least) {
  ReportSection section = shown_options(options, least);
  for (auto& [name, value] : section) {
    if (name == "dtype") value = std::string(to_string(choice.dtype));
    if (name == "max_model_len") value = choice.max_model_len;
  }
  return section;
}

std::vector<std::pair<std::string, ReportSection>> report_sections(const RunOptions& options, const Ranks& ranks,
                                                                   const Replica& replica,
                                                                   const std::string& mpi_version,
                                                                   const std::vector<RankFigures>& all,
                                                                   const StepTotals& steps) {
  MemoryPlan memory;  // of the first replica
  for (const RankFigures& rank : all) {
    if (rank.place.dp_rank != 0) continue;
    memory.weight_bytes += rank.weight_bytes;
    memory.activation_bytes += rank.activation_bytes;
    memory.window_bytes += rank.window_bytes;
    memory.kv_bytes += rank.kv_bytes;
  }
  const Memory& device = replica.ops->memory();
  ReportSection startup;
  for (const auto& [name, seconds] : replica.startup_seconds) startup.emplace_back(name, seconds);
  std::vector<std::pair<std::string, ReportSection>> out = {
      {"versions", {{"tokenmill", std::string(kVersion)}, {"mpi", mpi_version}}},
      {"configuration", configuration_section(options, replica.choice)},
      {"sampling", sampling_section(options.sampling)},
      {"model",
       {{"architecture", replica.choice.checkpoint->config().architecture},
        {"num_parameters", replica.plan.builder->num_parameters()},
        {"weight_bytes", memory.weight_bytes},
        {"activation_bytes", memory.activation_bytes},
        {"window_bytes", memory.window_bytes},
        {"kv_bytes", memory.kv_bytes},
        {"kv_tokens", replica.plan.memory.kv_tokens}}},
      {"machine",
       {{"ranks", static_cast<int64_t>(ranks.topology.ranks.size())},
        {"nodes", int64_t{ranks.topology.num_nodes}},
        {"device", replica.ops->describe()},
        {"numerics", replica.ops->numerics()}}},
      {"layout", layout_section(options, ranks, all)},
      {"loading", loading_section(options, ranks, all)}};
  ReportSection communication = communication_section(ranks, all, steps);
  if (!communication.empty()) out.emplace_back("communication", std::move(communication));
  ReportSection step_graphs = step_graphs_section(replica.runner->graph_figures());
  if (!step_graphs.empty()) out.emplace_back("step_graphs", std::move(step_graphs));
  if (replica.ops->device().kind == DeviceKind::kCuda) {
    out.emplace_back("device_memory", ReportSection{{"total_bytes", device.total_bytes()},
                                                    {"budget_bytes", replica.plan.memory.budget_bytes},
                                                    {"used_bytes", device.total_bytes() - device.free_bytes()},
                                                    {"driver_bytes", replica.plan.memory.driver_bytes}});
  }
  out.emplace_back("startup_seconds", std::move(startup));
  return out;
}

}  // namespace tokenmill::app
