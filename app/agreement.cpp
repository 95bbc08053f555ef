#include "app/agreement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "app/layout.h"
#include "app/report_files.h"
#include "app/report_sections.h"
#include "app/version.h"
#include "io/file_digest.h"
#include "jobs/job.h"

namespace tokenmill::app {
namespace {

std::string as_text(const jobs::ReportValue& value) {
  if (const auto* list = std::get_if<std::vector<std::string>>(&value)) return fmt::format("{}", *list);
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* number = std::get_if<int64_t>(&value)) return std::to_string(*number);
  return fmt::format("{}", std::get<double>(value));
}

}  // namespace

JobFacts job_facts(const RunOptions& options, const ModelChoice& choice, const std::string& numerics) {
  JobFacts facts = {{"version", kVersion}};
  for (const jobs::ReportSection& section :
       {configuration_section(options, choice, Bearing::kSchedule), sampling_section(options.sampling)}) {
    for (const auto& [name, value] : section) facts.emplace_back(name, as_text(value));
  }
  facts.emplace_back("numerics", numerics);
  // The number of parts whose products are added; how many ranks hold them does not matter.
  facts.emplace_back("tensor_parallel_parts", std::to_string(model_grid(options).num_parts()));
  if (!options.chat_template.empty()) facts.emplace_back("chat_template", io::file_digest(options.chat_template));
  const bool is_gguf = choice.checkpoint->is_gguf();
  std::map<std::string, int64_t> files;  // path -> bytes in front of the tensors
  for (const auto& [name, source] : choice.checkpoint->weights().all()) {
    const auto [file, is_new] = files.emplace(source.file, source.offset);
    file->second = std::min(file->second, source.offset);
  }
  if (!is_gguf) {
    for (const char* name : {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) {
      if (const std::string path = options.model_path() + "/" + name; std::filesystem::exists(path)) files.emplace(path, 0);
    }
  }
  for (const auto& [path, front_bytes] : files)
    facts.emplace_back("model file " + (is_gguf ? "(GGUF)" : std::filesystem::path(path).filename().string()),
                       io::file_digest(path, front_bytes));
  facts.emplace_back("model_name", model_name(options));
  facts.emplace_back("created", std::to_string(source_date_epoch()));
  return facts;
}

JobFacts identity_facts(const JobFacts& facts) {
  JobFacts out = facts;
  std::erase_if(out, [](const auto& fact) {
    std::string option = fact.first;
    std::replace(option.begin(), option.end(), '_', '-');
    const OptionSpec* spec = find_option(option);
    return spec != nullptr && spec->bearing == Bearing::kSchedule;
  });
  return out;
}

bool check_results(const RunOptions& options, const JobFacts& facts) {
  const jobs::OutputUse use = jobs::output_use({.inputs = options.input,
                                                .restart = options.restart,
                                                .accept_change = options.accept_change,
                                                .protected_paths = files_in_use(options)});
  const jobs::Identity identity = jobs::job_identity(identity_facts(facts), options.input);
  return jobs::can_continue(jobs::OutputDir(options.output), use, &identity);
}

void agree_on_facts(const JobFacts& facts, const parallel::Comm& world) {
  std::string mine;
  for (const auto& [name, value] : facts) mine += fmt::format("{}\x1f{}\x1e", name, value);
  const std::vector<std::string> all = parallel::gather_bytes(world, mine);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    // The first fact that differs; a fact only one side has stands on both sides of the same mark.
    size_t begin = 0;
    for (size_t i = 0; i < std::min(all[0].size(), all[rank].size()) && all[0][i] == all[rank][i]; ++i) {
      if (all[0][i] == '\x1e') begin = i + 1;
    }
    const auto fact = [&](const std::string& text) {
      std::string one = text.substr(begin, text.find('\x1e', begin) - begin);
      std::replace(one.begin(), one.end(), '\x1f', ' ');
      return one.empty() ? std::string("nothing") : one;
    };
    parallel::agree(world, Error(ErrorKind::kConfig, "rank {} would compute other results than rank 0: it has {}, rank 0 has {}; start every rank with the same command and the same model files",
                                 rank, fact(all[rank]), fact(all[0])));
  }
}

}  // namespace tokenmill::app
