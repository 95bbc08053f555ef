#include "app/report_sections.h"

#include "app/version.h"

namespace tokenmill::app {
namespace {

using jobs::ReportSection;

template <typename T>
void add_if(ReportSection& section, const char* name, const std::optional<T>& value) {
  if (value) section.emplace_back(name, *value);
}

}  // namespace

ReportSection sampling_section(const rows::SamplingDefaults& s) {
  ReportSection out;
  add_if(out, "temperature", s.temperature);
  add_if(out, "top_p", s.top_p);
  add_if(out, "top_k", s.top_k);
  add_if(out, "min_p", s.min_p);
  add_if(out, "max_tokens", s.max_tokens);
  add_if(out, "stop", s.stop);
  if (s.stop_token_ids) {
    std::vector<std::string> ids;
    for (const int32_t id : *s.stop_token_ids) ids.push_back(std::to_string(id));
    out.emplace_back("stop_token_ids", ids);
  }
  add_if(out, "include_stop_str_in_output", s.include_stop_str_in_output);
  add_if(out, "ignore_eos", s.ignore_eos);
  add_if(out, "skip_special_tokens", s.skip_special_tokens);
  return out;
}

ReportSection configuration_section(const RunOptions& o, const Replica& replica) {
  return {{"model", o.model},
          {"output", o.output},
          {"dtype", std::string(to_string(replica.dtype))},
          {"max_model_len", replica.max_model_len},
          {"max_num_seqs", o.max_num_seqs},
          {"max_num_batched_tokens", o.max_num_batched_tokens},
          {"block_size", o.block_size},
          {"enable_chunked_prefill", o.enable_chunked_prefill},
          {"seed", std::to_string(o.seed)},  // text: YAML readers take big integers for floats
          {"date", o.date},
          {"generation_config", std::string(o.use_generation_config ? "auto" : "none")},
          {"chat_template", o.chat_template},
          {"passthrough", o.passthrough},
          {"max_record_bytes", o.max_record_bytes}};
}

std::vector<std::pair<std::string, ReportSection>> report_sections(const RunOptions& options, const Ranks& ranks,
                                                                   const Replica& replica,
                                                                   const std::string& mpi_version) {
  const ModelConfig& config = replica.model->config();
  ReportSection startup;
  for (const auto& [name, seconds] : replica.startup_seconds) startup.emplace_back(name, seconds);
  return {{"versions", {{"tokenmill", std::string(kVersion)}, {"mpi", mpi_version}}},
          {"configuration", configuration_section(options, replica)},
          {"sampling", sampling_section(options.sampling)},
          {"model",
           {{"architecture", config.architecture},
            {"num_parameters", replica.num_parameters},
            {"weight_bytes", replica.memory.weight_bytes},
            {"activation_bytes", replica.memory.activation_bytes},
            {"kv_bytes", replica.memory.kv_bytes},
            {"kv_tokens", replica.memory.kv_tokens}}},
          {"machine",
           {{"ranks", static_cast<int64_t>(ranks.topology.ranks.size())},
            {"nodes", int64_t{ranks.topology.num_nodes}},
            {"data_parallel_size", int64_t{ranks.groups.grid.dp}},
            {"device", replica.ops->describe()},
            {"numerics", replica.ops->numerics()}}},
          {"startup_seconds", startup}};
}

}  // namespace tokenmill::app
