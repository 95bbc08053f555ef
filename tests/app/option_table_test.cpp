#include "app/option_table.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

using namespace tokenmill;
using namespace tokenmill::app;

namespace {

std::string text_of(const jobs::ReportValue& value) {
  if (const auto* list = std::get_if<std::vector<std::string>>(&value)) return fmt::format("{}", fmt::join(*list, ","));
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* number = std::get_if<int64_t>(&value)) return fmt::format("{}", *number);
  if (const auto* number = std::get_if<double>(&value)) return fmt::format("{}", *number);
  return std::get<std::string>(value);
}

/// A value that is not the default, and that is shown as it is written; empty: there is none.
std::string sample_of(const OptionSpec& spec) {
  static const std::map<std::string, std::string> words = {{"dtype", "bfloat16"},
                                                           {"date", "2026-01-02"},
                                                           {"output-format", "hdf5"},
                                                           {"output-layout", "parts"},
                                                           {"hidden-states", "mean"},
                                                           {"generation-config", "none"},
                                                           {"durability", "system"},
                                                           {"max-row-errors", "2.5%"},
                                                           {"overlong", "skip"},
                                                           {"shard", "3/4"},
                                                           {"watermark", "0.25"},
                                                           {"gpu-memory-utilization", "0.25"},
                                                           {"device", "cpu"},
                                                           {"cpu-isa", "avx2"},
                                                           {"attention-backend", "reference"},
                                                           {"load", "broadcast"},
                                                           {"load-format", "dummy"},
                                                           {"log-level", "debug"},
                                                           {"input-ids", "/x"},
                                                           {"chat-template-kwargs", ""},
                                                           {"deterministic", ""}};
  if (const auto found = words.find(spec.name); found != words.end()) return found->second;
  if (spec.shape == OptionShape::kSwitch) return spec.initial == std::string_view("true") ? "false" : "true";
  return std::string_view(spec.value).starts_with("BYTES") ? "4096" : "48";
}

}  // namespace

TEST_CASE("run.yaml shows every option of run, each with its own value") {
  const jobs::ReportSection before = shown_options({});
  size_t num_shown = 0;
  for (const OptionSpec& spec : option_table()) {
    const std::string name = spec.name;
    CAPTURE(name);
    CHECK_FALSE(is_future_option(name));
    const bool is_elsewhere = name == "input" || std::string_view(spec.group).starts_with("Sampling");
    REQUIRE((spec.shown != nullptr) == ((spec.commands & kRun) != 0 && !is_elsewhere));
    if (spec.shown == nullptr) continue;
    const size_t mine = num_shown++;
    const std::string sample = sample_of(spec);
    if (sample.empty()) continue;
    CHECK(text_of(before.at(mine).second) != sample);
    RunOptions options;
    apply_setting(options, {name, {sample}, "--" + name}, kRun);
    const jobs::ReportSection after = shown_options(options);
    REQUIRE(after.size() == before.size());
    CHECK(text_of(after[mine].second) == sample);
    for (size_t i = 0; i < after.size(); ++i) {
      CAPTURE(after[i].first);
      CHECK((i == mine || text_of(after[i].second) == text_of(before[i].second)));
    }
  }
  CHECK(num_shown == before.size());
  RunOptions options;
  apply_setting(options, {"chat-template-kwargs", {"a=1", "b=x"}, "--chat-template-kwargs"}, kRun);
  apply_setting(options, {"output-format", {"jsonl,hdf5"}, "--output-format"}, kRun);
  std::map<std::string, std::string> shown;
  for (const auto& [name, value] : shown_options(options)) shown[name] = text_of(value);
  CHECK(shown.at("chat_template_kwargs") == R"({"a":1,"b":"x"})");
  CHECK(shown.at("output_format") == "jsonl,hdf5");
  CHECK(shown.at("threads") == "auto");
}

TEST_CASE(
    "what decides results is part of a job's identity, and what decides the order of work is the same on all ranks") {
  const auto names = [](Bearing least) {
    std::string all;
    for (const auto& [name, value] : shown_options({}, least)) all += name + " ";
    return all;
  };
  CHECK(names(Bearing::kResults) ==
        "dtype max_model_len chat_template_kwargs generation_config think_start think_end date input_ids shard "
        "hidden_states passthrough overlong max_logprobs max_record_bytes block_size seed load_format ");
  const std::string schedule = names(Bearing::kSchedule);
  for (const char* name : {"max_num_seqs ", "max_num_batched_tokens ", "enable_prefix_caching ", "dedup ", "seed "})
    CHECK(schedule.find(name) != std::string::npos);
  for (const char* name : {"threads ", "output ", "metrics_file "}) CHECK(schedule.find(name) == std::string::npos);
}
