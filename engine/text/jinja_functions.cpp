// The functions every template sees.
#include <fmt/format.h>
#include <locale.h>

#include <clocale>
#include <ctime>

#include "engine/text/jinja_runtime.h"

namespace tokenmill::jinja {
namespace {

Value make_range(Runtime& runtime, Arguments& arguments) {
  constexpr int64_t kMaxRange = 100000;  // jinja2's sandbox
  const Bound bound(arguments, "range", {"start", "stop", "step"}, 1);
  if (!arguments.named.empty()) throw RenderError("range() takes no keyword arguments");
  const bool only_stop = bound[1] == nullptr;
  const int64_t start = only_stop ? 0 : bound.integer(0, 0);
  const int64_t stop = bound.integer(only_stop ? 0 : 1, 0);
  const int64_t step = bound.integer(2, 1);
  if (step == 0) throw RenderError("range() arg 3 must not be zero");
  std::vector<Value> items;
  for (__int128 at = start; step > 0 ? at < stop : at > stop; at += step) {
    if (static_cast<int64_t>(items.size()) == kMaxRange)
      throw RenderError(fmt::format("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", kMaxRange));
    items.push_back(Value::integer(static_cast<int64_t>(at)));
  }
  Value range = runtime.sequence(ValueKind::kRange, std::move(items));
  range.get<SequenceObject>().label =
      step == 1 ? fmt::format("range({}, {})", start, stop) : fmt::format("range({}, {}, {})", start, stop, step);
  return range;
}

// dict(mapping or pairs, name=value...)
std::vector<std::pair<Value, Value>> dict_entries(Runtime& runtime, const Arguments& arguments, const char* function) {
  if (arguments.positional.size() > 1)
    throw RenderError(fmt::format("{} expected at most 1 argument, got {}", function, arguments.positional.size()));
  std::vector<std::pair<Value, Value>> entries;
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.is_dict()) {
      entries = source.get<DictObject>().entries;
    } else {
      for (const Value& pair : to_vector(runtime, source)) {
        std::vector<Value> both = to_vector(runtime, pair);
        if (both.size() != 2)
          throw RenderError(
              fmt::format("dictionary update sequence element has length {}; 2 is required", both.size()));
        entries.emplace_back(std::move(both[0]), std::move(both[1]));
      }
    }
  }
  for (const auto& [name, value] : arguments.named) entries.emplace_back(runtime.string(name), value);
  return entries;
}

Value make_dict(Runtime& runtime, Arguments& arguments) {
  return runtime.dict(dict_entries(runtime, arguments, "dict"));
}

Value make_namespace(Runtime& runtime, Arguments& arguments) {
  const Value dict = runtime.dict(dict_entries(runtime, arguments, "namespace"));
  std::vector<std::pair<std::string, Value>> attributes;
  for (const auto& [name, value] : dict.get<DictObject>().entries)
    if (name.is_string()) attributes.emplace_back(name.text(), value);
  return runtime.make_namespace(std::move(attributes));
}

Value raise_exception(Runtime& runtime, Arguments& arguments) {
  const Bound bound(arguments, "raise_exception", {"message"}, 1);
  throw RenderError(to_text(runtime, *bound[0]));
}

// Days since 1970-01-01 of a day in the proleptic Gregorian calendar.
int64_t days_from_civil(int64_t year, int month, int day) {
  year -= month <= 2 ? 1 : 0;
  const int64_t era = (year >= 0 ? year : year - 399) / 400;
  const int64_t year_of_era = year - era * 400;
  const int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719468;
}

std::tm broken_down(const CivilTime& time) {
  std::tm out{};
  out.tm_year = time.year - 1900;
  out.tm_mon = time.month - 1;
  out.tm_mday = time.day;
  out.tm_hour = time.hour;
  out.tm_min = time.minute;
  out.tm_sec = time.second;
  const int64_t days = days_from_civil(time.year, time.month, time.day);
  out.tm_wday = static_cast<int>(((days + 4) % 7 + 7) % 7);
  out.tm_yday = static_cast<int>(days - days_from_civil(time.year, 1, 1));
  out.tm_zone = "";
  return out;
}

Value strftime_now(Runtime& runtime, Arguments& arguments) {
  static const locale_t c_locale = newlocale(LC_ALL_MASK, "C", nullptr);
  const Bound bound(arguments, "strftime_now", {"format"}, 1);
  std::string format;
  const std::string& given = bound.text(0);
  for (size_t i = 0; i < given.size(); ++i) {
    const bool directive = given[i] == '%' && i + 1 < given.size();
    if (directive && (given[i + 1] == 's' || given[i + 1] == 'f'))
      throw RenderError(fmt::format("strftime_now: directive %{} is not supported", given[i + 1]));
    if (directive && (given[i + 1] == 'Z' || given[i + 1] == 'z')) {
      ++i;  // a local time without a zone: empty, as in Python
      continue;
    }
    format += given[i];
    if (directive) format += given[++i];
  }
  if (format.size() > 1000) throw RenderError("strftime_now: the format is longer than 1000 bytes");
  const std::tm time = broken_down(runtime.now());
  format += 'x';  // tells an empty result from one that does not fit
  std::string out(format.size() * 8 + 256, '\0');
  const size_t size = strftime_l(out.data(), out.size(), format.c_str(), &time, c_locale);
  if (size == 0) throw RenderError("strftime_now: the text does not fit");
  out.resize(size - 1);
  return runtime.string(std::move(out));
}

Value make_cycler(Runtime& runtime, Arguments& arguments) {
  if (arguments.positional.empty() || !arguments.named.empty())
    throw RenderError("cycler(): at least one item has to be provided");
  const Value items = runtime.list(arguments.positional);
  auto cycler = std::make_shared<CyclerObject>();
  cycler->depth = items.depth();
  cycler->items = items.items();
  return Value::object(ValueKind::kCycler, std::move(cycler));
}

Value make_joiner(Runtime& runtime, Arguments& arguments) {
  const Bound bound(arguments, "joiner", {"sep"});
  const Value separator = bound[0] == nullptr ? runtime.string(", ") : *bound[0];
  bool used = false;
  return runtime.callable(
      "joiner",
      [separator, used](Runtime& rt, Arguments& none) mutable {
        const Bound nothing(none, "joiner", {});
        return std::exchange(used, true) ? separator : rt.string("");
      },
      separator);
}

}  // namespace

std::vector<std::pair<std::string, Value>> make_globals(Runtime& runtime) {
  std::vector<std::pair<std::string, Value>> globals;
  const auto add = [&](const char* name, Value (*function)(Runtime&, Arguments&)) {
    globals.emplace_back(name, runtime.callable(name, function));
  };
  add("range", make_range);
  add("dict", make_dict);
  add("namespace", make_namespace);
  add("raise_exception", raise_exception);
  add("strftime_now", strftime_now);
  add("cycler", make_cycler);
  add("joiner", make_joiner);
  return globals;
}

}  // namespace tokenmill::jinja
