#include <fmt/format.h>
#include <fmt/ostream.h>

#include <filesystem>
#include <map>

#include "app/commands/commands.h"
#include "app/diff/compare.h"
#include "app/diff/pairing.h"
#include "app/exit_codes.h"
#include "app/progress_view.h"
#include "io/json.h"
#include "io/utf8.h"
#include "kernels/core/error.h"

namespace tokenmill::app {
namespace {

constexpr size_t kMaxFields = 32;  // counted by name; columns of the user's could be any number

/// The file behind an operand: itself, or a directory's output.jsonl.
std::string output_file(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) {
    if (!std::filesystem::exists(path, ignored)) throw Error(ErrorKind::kConfig, "{}: no such file or directory", path);
    return path;
  }
  for (const char* name : {"output.jsonl", "output.jsonl.zst", "output.jsonl.gz"})
    if (std::string file = path + "/" + name; std::filesystem::exists(file, ignored)) return file;
  throw Error(ErrorKind::kConfig, "{} is a directory without output.jsonl; name an output file or a job's directory",
              path);
}

std::string row_name(const diff::ResultLine& line, const io::JsonValue& row) {
  const io::JsonValue* number = row.find("row");
  const io::JsonValue* custom_id = row.find("custom_id");
  const io::JsonValue* id = custom_id != nullptr ? custom_id : row.find("id");
  return fmt::format("{}, id {}", number != nullptr ? "row " + io::to_json(*number) : fmt::format("line {}", line.line),
                     id != nullptr ? io::excerpt(io::to_json(*id)) : "none");
}

/// What has been found so far, and how it is told.
class Report {
 public:
  Report(const DiffOptions& options, diff::RowStream& a, diff::RowStream& b, std::ostream& out)
      : options_(options), a_(a), b_(b), out_(out) {}

  void take(const diff::ResultLine* a, const diff::ResultLine* b) {
    if (a == nullptr || b == nullptr) return take_single(a, b);
    if (a->bytes == b->bytes && looks_whole(a->bytes)) {
      ++num_equal_;
      return;
    }
    const io::JsonValue row_a = io::parse_json(a->bytes, a_.place(*a));
    const io::JsonValue row_b = io::parse_json(b->bytes, b_.place(*b));
    const diff::RowComparison result = diff::compare_rows(row_a, row_b, options_.logprob_tolerance);
    num_logprobs_ += result.num_logprobs;
    if (result.max_logprob_distance > max_distance_) {
      max_distance_ = result.max_logprob_distance;
      max_distance_row_ = row_name(*a, row_a);
    }
    if (!result.difference) {
      ++num_equal_;
      return;
    }
    ++num_different_;
    const diff::Difference& d = *result.difference;
    std::string field = diff::without_positions(d.field);
    if (fields_.size() >= kMaxFields && !fields_.contains(field)) field = "other fields";
    ++fields_[field];
    print(fmt::format("{}: {} is {} in A, {} in B{}", row_name(*a, row_a), d.field, d.a, d.b,
                      d.note.empty() ? "" : fmt::format(" ({})", d.note)));
  }

  /// Prints the summary; true when the files are equal.
  bool finish(const diff::PairingNotes& notes) {
    const int64_t found = num_different_ + num_only_a_ + num_only_b_;
    if (found > num_printed_) fmt::print(out_, "... and {} more\n", format_count(found - num_printed_));
    fmt::print(out_, "A {}\nB {}\nrows: {} equal, {} different, {} only in A, {} only in B\n", a_.path(), b_.path(),
               format_count(num_equal_), format_count(num_different_), format_count(num_only_a_),
               format_count(num_only_b_));
    if (notes.num_moved > 0)
      fmt::print(out_, "{} of the compared rows stand in another order in B than in A\n",
                 format_count(notes.num_moved));
    if (notes.num_separated > 0)
      fmt::print(out_,
                 "at least {} ids are in both and were not compared: their rows stand too far apart for one reading; "
                 "bring both outputs into one order first\n",
                 format_count(notes.num_separated));
    for (const auto& [field, count] : fields_) fmt::print(out_, "  {}: first difference of {} rows\n", field, count);
    if (num_logprobs_ > 0)
      fmt::print(out_, "logprobs: largest distance {:.3g}{} in rows that are equal otherwise; tolerance {:.3g}\n",
                 max_distance_, max_distance_ > 0 ? fmt::format(" ({})", max_distance_row_) : "",
                 options_.logprob_tolerance);
    return found == 0;
  }

 private:
  static bool looks_whole(const std::string& line) { return line.starts_with('{') && line.ends_with('}'); }

  void take_single(const diff::ResultLine* a, const diff::ResultLine* b) {
    const diff::RowStream& stream = a != nullptr ? a_ : b_;
    const diff::ResultLine& line = a != nullptr ? *a : *b;
    ++(a != nullptr ? num_only_a_ : num_only_b_);
    print(fmt::format("{}: only in {}", row_name(line, io::parse_json(line.bytes, stream.place(line))),
                      a != nullptr ? 'A' : 'B'));
  }

  void print(const std::string& text) {
    if (num_printed_ >= options_.max_differences) return;
    ++num_printed_;
    out_ << text << '\n';
  }

  const DiffOptions& options_;
  diff::RowStream& a_;
  diff::RowStream& b_;
  std::ostream& out_;
  int64_t num_equal_ = 0, num_different_ = 0, num_only_a_ = 0, num_only_b_ = 0, num_printed_ = 0;
  std::map<std::string, int64_t> fields_;  // first differences by field
  int64_t num_logprobs_ = 0;
  double max_distance_ = 0;
  std::string max_distance_row_;
};

}  // namespace

int diff_outputs(const RunOptions& options, std::ostream& out) {
  const DiffOptions& wanted = options.diff;
  if (wanted.a.empty() || wanted.b.empty())
    throw Error(ErrorKind::kConfig,
                "diff needs two outputs: tokenmill diff A B, each an output file or a job's directory");
  try {
    diff::RowStream a(output_file(wanted.a)), b(output_file(wanted.b));
    Report report(wanted, a, b, out);
    const diff::PairingNotes notes = diff::visit_pairs(
        a, b, [&](const diff::ResultLine* left, const diff::ResultLine* right) { report.take(left, right); });
    const bool equal = report.finish(notes);
    out.flush();
    if (!out) throw Error(ErrorKind::kIo, "standard output cannot be written");
    return equal ? kExitDone : kExitDifferent;
  } catch (const Error& error) {
    // As diff(1) has it: 2 means that there was no comparison, whatever the reason.
    if (error.kind() == ErrorKind::kIo && out) throw Error(ErrorKind::kInput, error.what());
    throw;
  }
}

}  // namespace tokenmill::app
