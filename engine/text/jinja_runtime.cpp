#include "engine/text/jinja_runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "engine/text/jinja_loop.h"
#include "kernels/core/error.h"

namespace tokenmill::jinja {
namespace {

// Depth of a container of `items`; refuses what would be too deep.
int container_depth(int deepest) {
  if (deepest >= kMaxValueDepth)
    throw RenderError(fmt::format("lists and dicts are nested more than {} levels deep", kMaxValueDepth));
  return deepest + 1;
}

}  // namespace

Runtime::~Runtime() {
  // Namespaces may hold each other: empty them before they go.
  for (const auto& space : namespaces_) space->attributes.clear();
}

void Runtime::out_of_work() const {
  throw RenderError(fmt::format("the template does too much work (limit {} units)", limits_.max_work));
}

DepthGuard::DepthGuard(Runtime& runtime) : runtime_(runtime) {
  if (runtime.evaluation_depth >= kMaxEvaluationDepth)
    throw RenderError(fmt::format("calls and expressions are nested more than {} levels deep (a macro without an end?)",
                                  kMaxEvaluationDepth));
  ++runtime.evaluation_depth;
}

Value Runtime::sequence(ValueKind kind, std::vector<Value> items) {
  charge_items(items.size());
  auto object = std::make_shared<SequenceObject>();
  int deepest = 0;
  for (const Value& item : items) deepest = std::max(deepest, item.depth());
  object->depth = container_depth(deepest);
  object->items = std::move(items);
  return Value::object(kind, std::move(object));
}

Value Runtime::dict(std::vector<std::pair<Value, Value>> entries) {
  charge_items(entries.size() * 3);
  auto object = std::make_shared<DictObject>();
  int deepest = 0;
  for (auto& [key, value] : entries) {
    deepest = std::max({deepest, key.depth(), value.depth()});
    object->set(*this, std::move(key), std::move(value));
  }
  object->depth = container_depth(deepest);
  return Value::object(ValueKind::kDict, std::move(object));
}

Value Runtime::generator(const Value& source, std::function<bool(Value&)> next) {
  charge_items(4);
  auto object = std::make_shared<GeneratorObject>();
  object->depth = container_depth(source.depth());
  object->next = std::move(next);
  return Value::object(ValueKind::kGenerator, std::move(object));
}

Value Runtime::callable(std::string name, std::function<Value(Runtime&, Arguments&)> call, const Value& self) {
  charge_items(4);
  auto object = std::make_shared<CallableObject>();
  object->depth = container_depth(self.depth());
  object->name = std::move(name);
  object->call = std::move(call);
  return Value::object(ValueKind::kCallable, std::move(object));
}

Value Runtime::make_namespace(std::vector<std::pair<std::string, Value>> attributes) {
  charge_items(8);
  auto object = std::make_shared<NamespaceObject>();
  object->attributes = std::move(attributes);
  namespaces_.push_back(object);
  return Value::object(ValueKind::kNamespace, std::move(object));
}

Value Runtime::from_json(const io::JsonValue& json) {
  switch (json.kind()) {
    case io::JsonValue::Kind::kNull:
      return {};
    case io::JsonValue::Kind::kBool:
      return Value::boolean(json.as_bool());
    case io::JsonValue::Kind::kString:
      return string(json.as_string());
    case io::JsonValue::Kind::kNumber: {
      if (json.fits_int64()) return Value::integer(json.as_int64());
      const std::string& text = json.number_text();
      if (text.find_first_of(".eE") == std::string::npos) return Value::big_integer(text);
      return Value::real(json.as_double());
    }
    case io::JsonValue::Kind::kArray: {
      std::vector<Value> items;
      charge_items(json.items().size());
      items.reserve(json.items().size());
      for (const auto& item : json.items()) items.push_back(from_json(item));
      return list(std::move(items));
    }
    case io::JsonValue::Kind::kObject: {
      std::vector<std::pair<Value, Value>> entries;
      charge_items(json.members().size());
      entries.reserve(json.members().size());
      for (const auto& [name, value] : json.members()) entries.emplace_back(string(name), from_json(value));
      return dict(std::move(entries));
    }
  }
  return {};
}

Bound::Bound(const Arguments& arguments, std::string_view function, std::initializer_list<const char*> parameters,
             size_t num_required)
    : function_(function), parameters_(parameters), values_(parameters.size(), nullptr) {
  if (arguments.positional.size() > parameters_.size())
    throw RenderError(fmt::format("{}() takes at most {} arguments ({} given)", function, parameters_.size(),
                                  arguments.positional.size()));
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& argument : arguments.named) {
    const std::string& name = argument.first;
    const auto found = std::find_if(parameters_.begin(), parameters_.end(), [&](const char* p) { return name == p; });
    if (found == parameters_.end())
      throw RenderError(fmt::format("{}() got an unexpected keyword argument '{}'", function, name));
    const Value*& slot = values_[static_cast<size_t>(found - parameters_.begin())];
    if (slot != nullptr) throw RenderError(fmt::format("{}() got multiple values for argument '{}'", function, name));
    slot = &argument.second;
  }
  for (size_t i = 0; i < num_required; ++i)
    if (values_[i] == nullptr)
      throw RenderError(fmt::format("{}() is missing its argument '{}'", function, parameters_[i]));
}

bool Bound::flag(size_t parameter, bool otherwise) const {
  return values_[parameter] == nullptr ? otherwise : values_[parameter]->truthy();
}

int64_t Bound::integer(size_t parameter, int64_t otherwise) const {
  const Value* value = values_[parameter];
  if (value == nullptr) return otherwise;
  if (value->is_undefined()) throw RenderError(value->undefined_message());
  if (!value->is_integral())
    throw RenderError(fmt::format("{}(): argument '{}' must be an integer, not {}", function_, parameters_[parameter],
                                  value->type_name()));
  return value->as_int();
}

const std::string& Bound::text(size_t parameter) const {
  const Value* value = values_[parameter];
  if (value != nullptr && value->is_undefined()) throw RenderError(value->undefined_message());
  if (value == nullptr || !value->is_string())
    throw RenderError(fmt::format("{}(): argument '{}' must be a string, not {}", function_, parameters_[parameter],
                                  value == nullptr ? "missing" : value->type_name()));
  return value->text();
}

Value call_value(Runtime& runtime, const Value& callee, Arguments& arguments) {
  if (callee.is_undefined()) throw RenderError(callee.undefined_message());
  if (!callee.is(ValueKind::kCallable) && !callee.is(ValueKind::kLoop))
    throw RenderError(fmt::format("'{}' object is not callable", callee.type_name()));
  const DepthGuard guard(runtime);
  if (callee.is(ValueKind::kLoop)) {
    const auto recurse = callee.get<LoopObject>().recurse;
    if (!recurse) throw RenderError("The loop must have the 'recursive' marker to be called recursively.");
    return recurse(runtime, arguments);
  }
  return callee.get<CallableObject>().call(runtime, arguments);
}

namespace {

bool is_leap(int year) { return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0; }

int days_in_month(int year, int month) {
  constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  return month == 2 && is_leap(year) ? 29 : kDays[month - 1];
}

bool read_digits(std::string_view text, size_t at, size_t count, int& out) {
  if (at + count > text.size()) return false;
  const auto [end, code] = std::from_chars(text.data() + at, text.data() + at + count, out);
  return code == std::errc{} && end == text.data() + at + count && text[at] != '-' && text[at] != '+';
}

}  // namespace

CivilTime parse_civil_time(std::string_view text) {
  CivilTime time;
  bool good = (text.size() == 10 || text.size() == 19) && text[4] == '-' && text[7] == '-' &&
              read_digits(text, 0, 4, time.year) && read_digits(text, 5, 2, time.month) &&
              read_digits(text, 8, 2, time.day);
  if (good && text.size() == 19)
    good = (text[10] == 'T' || text[10] == ' ') && text[13] == ':' && text[16] == ':' &&
           read_digits(text, 11, 2, time.hour) && read_digits(text, 14, 2, time.minute) &&
           read_digits(text, 17, 2, time.second);
  good = good && time.year >= 1 && time.month >= 1 && time.month <= 12 && time.day >= 1 &&
         time.day <= days_in_month(time.year, time.month) && time.hour < 24 && time.minute < 60 && time.second < 60;
  if (!good)
    throw Error(ErrorKind::kConfig, "date \"{}\" is not a day of the form 2026-07-30 or 2026-07-30T13:05:00", text);
  return time;
}

}  // namespace tokenmill::jinja
