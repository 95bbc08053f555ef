#include "app/job_file.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "app/option_table.h"
#include "io/file.h"
#include "kernels/core/error.h"

namespace tokenmill::app {
namespace {

constexpr int64_t kMaxJobFileBytes = 1 << 20;

struct Reader {
  const std::string& path;
  std::map<std::string, int> first_line;  // yaml-cpp keeps repeated keys silently
  std::vector<Setting> settings;

  std::string place(const YAML::Node& node) const { return path + ":" + std::to_string(node.Mark().line + 1); }

  /// A mapping of an option that takes one, as its flag writes it.
  std::vector<std::string> pairs_of(const YAML::Node& mapping, const std::string& where) const {
    std::vector<std::string> pairs;
    for (const auto& entry : mapping) {
      if (!entry.first.IsScalar() || !entry.second.IsScalar())
        throw Error(ErrorKind::kConfig, "{}: it must hold lines \"name: number\"", where);
      pairs.push_back(entry.first.Scalar() + "=" + entry.second.Scalar());
    }
    return pairs;
  }

  std::vector<std::string> values_of(const YAML::Node& value, const std::string& name, const std::string& where) const {
    if (value.IsScalar()) return {value.Scalar()};
    const OptionSpec* spec = find_option(name);
    if (value.IsMap() && spec != nullptr && spec->shape == OptionShape::kMap) return pairs_of(value, where);
    if (value.IsNull()) throw Error(ErrorKind::kConfig, "{} has no value; give one or remove the line", where);
    if (!value.IsSequence())
      throw Error(ErrorKind::kConfig, "{} is a mapping; it must be a value or a list of values", where);
    if (value.size() == 1 && spec != nullptr && !takes_several(spec->shape))
      throw Error(ErrorKind::kConfig, "{} is a list; it takes one value: write it without brackets or dash", where);
    std::vector<std::string> values;
    for (const YAML::Node& item : value) {
      if (!item.IsScalar())
        throw Error(ErrorKind::kConfig, "{}: item {} is not a plain value; lists hold plain values only", where,
                    values.size() + 1);
      values.push_back(item.Scalar());
    }
    return values;
  }

  void read_mapping(const YAML::Node& mapping, bool inside_sampling) {
    for (const auto& entry : mapping) {
      if (!entry.first.IsScalar())
        throw Error(ErrorKind::kConfig, "{}: a key must be an option's name", place(entry.first));
      const std::string written = entry.first.Scalar();
      std::string name = written;
      std::replace(name.begin(), name.end(), '_', '-');
      const std::string where = place(entry.first) + ": " + written;
      const auto [first, is_new] = first_line.emplace(name, entry.first.Mark().line + 1);
      if (!is_new)
        throw Error(ErrorKind::kConfig, "{} is given twice (first in line {}); keep one", where, first->second);
      if (name == "sampling" && !inside_sampling) {
        if (!entry.second.IsMap())
          throw Error(ErrorKind::kConfig, "{} must be a mapping such as \"temperature: 0\"", where);
        read_mapping(entry.second, true);
        continue;
      }
      const OptionSpec* spec = inside_sampling ? find_option(name) : nullptr;
      if (spec != nullptr && !std::string_view(spec->group).starts_with("Sampling"))
        throw Error(ErrorKind::kConfig, "{} is not a sampling option; move it out of \"sampling:\"", where);
      settings.push_back({name, values_of(entry.second, name, where), where});
    }
  }
};

}  // namespace

std::vector<Setting> parse_job_file(std::string_view text, const std::string& path) {
  std::vector<YAML::Node> documents;
  try {
    documents = YAML::LoadAll(std::string(text));
  } catch (const YAML::Exception& error) {
    throw Error(ErrorKind::kConfig, "{}:{}: not valid YAML ({})", path, error.mark.line + 1, error.msg);
  }
  if (documents.empty() || (documents.size() == 1 && documents[0].IsNull())) return {};
  if (documents.size() > 1)
    throw Error(ErrorKind::kConfig, "{} holds {} YAML documents; a job file is one", path, documents.size());
  if (!documents[0].IsMap())
    throw Error(ErrorKind::kConfig, "{} must hold option names and values, one \"name: value\" a line", path);
  Reader reader{path, {}, {}};
  reader.read_mapping(documents[0], false);
  return std::move(reader.settings);
}

std::vector<Setting> read_job_file(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) throw Error(ErrorKind::kConfig, "the job file {}: no such file", path);
  if (std::filesystem::is_directory(path, ignored))
    throw Error(ErrorKind::kConfig, "the job file {} is a directory; it must be a file", path);
  return parse_job_file(io::read_file(path, kMaxJobFileBytes), path);
}

}  // namespace tokenmill::app
