#include "jobs/journal/identity.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>

#include "io/file.h"
#include "io/file_digest.h"
#include "io/record_reader.h"
#include "jobs/journal/ledger.h"
#include "kernels/core/error.h"

namespace tokenmill::jobs {
namespace {

constexpr int64_t kMaxBytes = int64_t{64} << 20;  // of an identity file
constexpr size_t kMaxNamed = 3;                   // differences
constexpr const char* kTitle = "# what decides the results of this job; written by tokenmill, not to be edited\n";
constexpr const char* kChecksum = "checksum: ";

constexpr const char* kChanged = ", changed ";  // behind an input's path

std::string input_name(size_t number) { return fmt::format("input {}", number); }

/// On one line.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') out += "\\\\";
    else if (c == '\n') out += "\\n";
    else out += c;
  }
  return out;
}

std::string unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) out += text[i];
    else out += text[++i] == 'n' ? '\n' : text[i];
  }
  return out;
}

std::string checksum_line(std::string_view text) { return fmt::format("{}{:016x}\n", kChecksum, digest(text)); }

/// Two inputs that differ at most in their paths and times of change.
bool has_same_digest(const std::string& a, const std::string& b) {
  const auto content = [](const std::string& value) {
    const size_t time = value.rfind(kChanged);
    return time == value.npos ? std::string_view() : std::string_view(value).substr(value.find(", ", time + 1));
  };
  return !content(a).empty() && content(a) == content(b);
}

std::string time_of_change(const std::string& path) {
  const auto [seconds, nanoseconds] = std::lldiv(io::time_of_change_ns(path), 1'000'000'000);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:09d}Z", fmt::gmtime(static_cast<std::time_t>(seconds)), nanoseconds);
}

}  // namespace

const std::string* Identity::find(const std::string& name) const {
  const auto found = std::find_if(facts_.begin(), facts_.end(), [&](const auto& fact) { return fact.first == name; });
  return found == facts_.end() ? nullptr : &found->second;
}

std::string Identity::text() const {
  std::string out = kTitle;
  for (const auto& [name, value] : facts_) out += fmt::format("{}: {}\n", name, escaped(value));
  return out + checksum_line(out);
}

Identity Identity::parse(const std::string& text, const std::string& path) {
  const size_t end = text.rfind(kChecksum);
  if (end == text.npos || text.substr(end) != checksum_line(std::string_view(text).substr(0, end)))
    throw Error(ErrorKind::kIo,
                "{} is damaged or was edited (its checksum does not match): what the results in this directory were "
                "computed from is not known; give --restart to begin anew, or another --output",
                path);
  Identity identity;
  for (size_t at = text.find('\n') + 1; at < end;) {
    const size_t line_end = text.find('\n', at);
    const std::string_view line = std::string_view(text).substr(at, line_end - at);
    const size_t colon = line.find(": ");
    identity.facts_.emplace_back(line.substr(0, colon), unescaped(line.substr(std::min(colon + 2, line.size()))));
    at = line_end + 1;
  }
  return identity;
}

Identity Identity::read(const std::string& path) { return parse(io::read_file(path, kMaxBytes), path); }

std::string Identity::difference_from(const Identity& earlier) const {
  std::vector<std::string> differences;
  for (const auto& [name, value] : facts_) {
    const std::string* old = earlier.find(name);
    if (old == nullptr) differences.push_back(fmt::format("{} was not there and is {}", name, value));
    else if (*old != value)
      differences.push_back(fmt::format("{} was {} and is {}{}", name, *old, value,
                                        has_same_digest(*old, value) ? " (as large, and with the same digest)" : ""));
  }
  for (const auto& [name, value] : earlier.facts_)
    if (find(name) == nullptr) differences.push_back(fmt::format("{} was {} and is gone", name, value));
  const size_t more = differences.size() - std::min(kMaxNamed, differences.size());
  differences.resize(differences.size() - more);
  return fmt::format("{}{}", fmt::join(differences, "; "), more > 0 ? fmt::format("; and {} more", more) : "");
}

std::vector<std::string> input_paths(const Identity& identity) {
  std::vector<std::string> paths;
  for (size_t i = 1;; ++i) {
    const std::string* value = identity.find(input_name(i));
    if (value == nullptr) return paths;
    paths.push_back(value->substr(0, value->rfind(kChanged)));
  }
}

Identity job_identity(Identity::Facts facts, const std::vector<std::string>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string file = io::files_of({inputs[i]}).front();
    facts.emplace_back(input_name(i + 1), fmt::format("{}{}{}, {}", inputs[i], kChanged, time_of_change(file),
                                                      io::file_digest(file)));
  }
  return Identity(std::move(facts));
}

}  // namespace tokenmill::jobs
