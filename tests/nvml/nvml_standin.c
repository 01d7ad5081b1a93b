/* A stand-in for libnvidia-ml.so.1, driven by a text file named in GPUTUI_NVML_SCENARIO.
 *
 * Lines of the file: SCOPE KEY VALUE, where SCOPE is `driver`, the number of a GPU, `*` for every GPU, or
 * `0:2` for the MIG slice with index 2 of GPU 0; `#` begins a comment. A later line wins, and one with a
 * number wins over one with `*`.
 *
 *   driver gpus 2                         GPUs the driver counts
 *   driver gpus 3 5 10                    … from 5 s after the library was loaded, until 10 s after it
 *   driver loaded 1                       which loading of the driver this is: another number than at
 *                                         nvmlInit makes every call fail until nvmlShutdown and nvmlInit;
 *                                         0 means it is not loaded
 *   driver loaded 0 5 10                  the driver goes at 5 s and is back at 10 s
 *   driver version 580.95.05              driver version; it decides which version of the process lists there is,
 *                                         and from 535.43 until 535.98 how large the entries of the third are
 *   driver cuda 13000                     highest CUDA
 *   driver error nvmlInitWithFlags 9      return code of a function without a device
 *   0 name NVIDIA H200                    see the questions below for the keys and their defaults;
 *                                         \n and \xNN stand for bytes
 *   0 sm_busy_pct ~ 20 90 7               a number that goes to and fro between 20 and 90 in 7 s;
 *   0 sm_busy_pct ~ 20 90 7 2             … 2 s ahead
 *   0 energy_mj + 1000 700                a number that begins at 1000 and grows by 700 every second
 *   1 error nvmlDeviceGetPowerUsage 3     return code of a function for this GPU
 *   1 error nvmlDeviceGetName 999 5 10    … from 5 s until 10 s
 *   1 error * 15                          return code of every function for this GPU
 *   1 every nvmlDeviceGetPowerUsage 3 999 return code of every third call of a function, or of `*`
 *   1 delay_ms nvmlDeviceGetPowerUsage 25 time the function takes, or `*`; … 25 5 10 as above
 *   1 hang nvmlDeviceGetPowerUsage 2     a function, or `*`, does not return from its second call on,
 *                                         until the file says 0
 *   0 field 186 345000                    a field value; one that is not given is not supported
 *   0 absent_field_code 2                 … or what an older driver answers, to which it is no argument
 *   0 gpm 5 41.5                          a GPM metric; one that is not given is not supported
 *   0 violation 0 5000000                 accumulated violation time of a policy
 *   0 process 4711 C 2048 55              PID, C or G or CG, its MiB (`-`: not told), its SM percent
 *                                         (`-`: not told), and on a MIG slice the slice's number
 *   0 process 4711 -                      … has ended
 *   0 xid 79                              the code of the errors that it reports as events
 *   0 xids 2                              how many of them there have been
 *   0 remapped_rows 3                     rows of its memory; remapping_pending and remapping_failed are 1 or 0
 *   0 nvlinks 18                          NVLink connections; nvlinks_down of them are down
 *   0 mig 1                               MIG is on
 *   0 mig_slices 5                        … with slices of the indices 0 to 4
 *   0:2 gone 1                            … of which this one was destroyed
 *   0:1 profile 1g.10gb                   what its name ends in; `name` is the whole of it, `uuid` its UUID
 *   0:1 gpu_instance 9                    and compute_instance: its ids, else 7 and its index, and 0
 *   0:1 memory_used_mib 6451              memory_total_mib, memory_reserved_mib, gpm, error, hang as of a GPU
 *
 * The file is read again whenever it changed, so that a test can let a GPU be lost while it is watched.
 * standin_calls(name) tells how often a function was called; of all functions for NULL.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    TIMEOUT = 10,
    FUNCTION_NOT_FOUND = 13,
    GPU_IS_LOST = 15,
    VERSION_MISMATCH = 25,
};
enum { MAX_GPUS = 64, MAX_SLICES = 8, MAX_PROCESSES = 256, MAX_FUNCTIONS = 128, FIRST_INSTANCE = 7 };
#define MIB (1ULL << 20)

enum { DRIVER = -2, ANY = -1, SLICES = 1000 }; /* scopes that are no GPU's number; slices follow SLICES */
#define SLICE_SCOPE(gpu, slice) (SLICES + MAX_SLICES * (gpu) + (slice))

typedef struct {
    char text[240];
    char kind;                /* '=' a constant, '~' to and fro, '+' growing */
    long long constant;
    double low, high, period; /* of '+': begin, per second */
    double ahead;
    double from, until;       /* seconds after the library was loaded */
} Value;

typedef struct {
    int scope;
    unsigned hash;
    char key[88];
    Value value;
    atomic_uint asked; /* of `every` and `hang` */
} Line;

typedef struct {
    int count;
    Line *lines;
} Scenario;

/* A handle: a GPU, or one MIG slice of it. */
typedef struct {
    int gpu;
    int slice; /* -1 for the whole GPU */
} Device;

static _Atomic(Scenario *) scenario; /* one that was replaced is kept: a thread may still read it */
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static double loaded_at;
static Device gpus[MAX_GPUS];
static Device slices[MAX_GPUS][MAX_SLICES];

static double monotonic_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double age_s(void) { return monotonic_s() - loaded_at; }

__attribute__((constructor)) static void loaded(void) { loaded_at = monotonic_s(); }

static unsigned hash_of(const char *text) {
    unsigned hash = 2166136261u;
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 16777619u;
    return hash;
}

/* ---- reading the scenario ---- */

static void unescape(char *out, size_t size, const char *text) {
    size_t used = 0;
    while (*text && used + 1 < size) {
        unsigned byte;
        if (text[0] == '\\' && text[1] == 'n') {
            out[used++] = '\n';
            text += 2;
        } else if (text[0] == '\\' && text[1] == 'x' && sscanf(text + 2, "%2x", &byte) == 1) {
            out[used++] = (char)byte;
            text += 4;
        } else {
            out[used++] = *text++;
        }
    }
    out[used] = 0;
}

static int is_one_of(const char *word, const char *const *words) {
    for (; *words; words++)
        if (!strcmp(word, *words)) return 1;
    return 0;
}

static void parse_value(Value *value, const char *rest, int has_window) {
    memset(value, 0, sizeof *value);
    unescape(value->text, sizeof value->text, rest);
    value->kind = '=';
    value->constant = strtoll(rest, NULL, 0);
    value->low = strtod(rest, NULL);
    value->until = 1e18;
    if (sscanf(rest, "~ %lf %lf %lf %lf", &value->low, &value->high, &value->period, &value->ahead) >= 3)
        value->kind = '~';
    else if (sscanf(rest, "+ %lf %lf", &value->low, &value->period) == 2)
        value->kind = '+';
    if (has_window) sscanf(rest, "%*s %lf %lf", &value->from, &value->until);
}

static int parse_line(Line *line, char *text) {
    static const char *const with_name[] = {"error", "every", "delay_ms",  "hang",
                                            "field", "gpm",   "violation", "process", NULL};
    static const char *const with_window[] = {"error", "delay_ms", "gpus", "loaded", NULL};
    char *comment = strchr(text, '#');
    if (comment) *comment = 0;
    text[strcspn(text, "\n")] = 0;
    for (size_t end = strlen(text); end && text[end - 1] == ' '; end--) text[end - 1] = 0;
    char scope[16], word[24];
    int used = 0;
    if (sscanf(text, "%15s %23s %n", scope, word, &used) < 2) return 0;
    char *rest = text + used;
    snprintf(line->key, sizeof line->key, "%s", word);
    if (is_one_of(word, with_name)) {
        char name[60] = "";
        int skip = 0;
        sscanf(rest, "%59s %n", name, &skip);
        snprintf(line->key, sizeof line->key, "%s %s", word, name);
        rest += skip;
    }
    const char *slice = strchr(scope, ':');
    line->scope = !strcmp(scope, "driver") ? DRIVER
                  : !strcmp(scope, "*")    ? ANY
                  : slice                  ? SLICE_SCOPE(atoi(scope), atoi(slice + 1))
                                           : atoi(scope);
    line->hash = hash_of(line->key);
    parse_value(&line->value, rest, is_one_of(word, with_window));
    return 1;
}

static void load(void) {
    static struct timespec seen;
    static off_t seen_size = -1;
    static const char *path;
    struct stat status;
    if (!path) path = getenv("GPUTUI_NVML_SCENARIO");
    if (!path || stat(path, &status)) return;
    if (scenario && status.st_size == seen_size && status.st_mtim.tv_sec == seen.tv_sec &&
        status.st_mtim.tv_nsec == seen.tv_nsec)
        return;
    pthread_mutex_lock(&loading);
    FILE *file = fopen(path, "r");
    if (file) {
        Scenario *read = calloc(1, sizeof *read);
        char text[4096];
        int room = 0;
        while (fgets(text, sizeof text, file)) {
            if (read->count == room) {
                room = room ? 2 * room : 64;
                read->lines = realloc(read->lines, (size_t)room * sizeof *read->lines);
            }
            Line *line = &read->lines[read->count];
            memset(line, 0, sizeof *line);
            read->count += parse_line(line, text);
        }
        fclose(file);
        seen = status.st_mtim;
        seen_size = status.st_size;
        scenario = read;
    }
    pthread_mutex_unlock(&loading);
}

static Line *find(int scope, const char *key) {
    const Scenario *now = scenario;
    unsigned hash = hash_of(key);
    double age = -1;
    Line *of_all = NULL;
    for (int i = now ? now->count - 1 : -1; i >= 0; i--) {
        Line *line = &now->lines[i];
        int is_gpu = scope != DRIVER && scope < SLICES;
        if (line->hash != hash || (line->scope != scope && (line->scope != ANY || !is_gpu || of_all)))
            continue;
        if (strcmp(line->key, key)) continue;
        if (line->value.from > 0 || line->value.until < 1e18) {
            if (age < 0) age = age_s();
            if (age < line->value.from || age >= line->value.until) continue;
        }
        if (line->scope == scope) return line;
        of_all = line;
    }
    return of_all;
}

static double moving(const Value *value) {
    if (value->kind == '+') return value->low + value->period * age_s();
    if (value->kind == '=') return value->low;
    double turn = (age_s() + value->ahead) / value->period;
    turn -= (double)(long long)turn;
    double share = turn < 0.5 ? 2 * turn : 2 - 2 * turn;
    return value->low + (value->high - value->low) * share;
}

static long long whole(const Value *value) {
    return value->kind == '=' ? value->constant : (long long)moving(value);
}

static long long number(int scope, const char *key, long long otherwise) {
    const Line *line = find(scope, key);
    return line ? whole(&line->value) : otherwise;
}

static const char *text_of(int scope, const char *key, const char *otherwise) {
    const Line *line = find(scope, key);
    return line ? line->value.text : otherwise;
}

static const Line *find_numbered(int gpu, const char *key, unsigned n) {
    char full[40];
    snprintf(full, sizeof full, "%s %u", key, n);
    return find(gpu, full);
}

/* ---- counting calls, failing and waiting ---- */

typedef struct {
    const char *_Atomic function;
    atomic_ullong count;
} Calls;

static Calls calls[MAX_FUNCTIONS];

static void count_call(const char *function) {
    for (int i = 0; i < MAX_FUNCTIONS; i++) {
        const char *none = NULL;
        if (calls[i].function == function || atomic_compare_exchange_strong(&calls[i].function, &none, function)) {
            calls[i].count++;
            return;
        }
    }
}

unsigned long long standin_calls(const char *function) {
    unsigned long long sum = 0;
    for (int i = 0; i < MAX_FUNCTIONS && calls[i].function; i++)
        if (!function || !strcmp(function, calls[i].function)) sum += calls[i].count;
    return sum;
}

static pthread_mutex_t sessions = PTHREAD_MUTEX_INITIALIZER;
static int open_sessions;
static long long loaded_number; /* of the driver, when the first session was opened */

static long long driver_loaded(void) { return number(DRIVER, "loaded", 1); }

static atomic_int is_dead;      /* a session that has outlived its driver stays dead */

/* What keeps the driver from answering at all. */
static int session_code(void) {
    if (!open_sessions) return UNINITIALIZED;
    if (driver_loaded() != loaded_number) is_dead = 1;
    return is_dead ? UNINITIALIZED : SUCCESS;
}

/* What the scenario says of a function for a scope, else of all of them. */
static Line *find_for(int scope, const char *what, const char *function) {
    char key[88];
    snprintf(key, sizeof key, "%s %s", what, function);
    Line *line = find(scope, key);
    if (line) return line;
    snprintf(key, sizeof key, "%s *", what);
    return find(scope, key);
}

/* Waits and fails as the scenario says. */
static int misbehave(int scope, const char *function) {
    char key[88];
    snprintf(key, sizeof key, "delay_ms %s", function);
    long long delay = number(scope, key, -1);
    if (delay < 0) delay = number(scope, "delay_ms *", 0);
    if (delay > 0) usleep((useconds_t)delay * 1000);
    Line *hang = find_for(scope, "hang", function);
    if (hang && hang->value.constant && ++hang->asked >= (unsigned)hang->value.constant)
        while (hang && hang->value.constant) {
            usleep(20000);
            load();
            hang = find_for(scope, "hang", function);
        }
    Line *every = find_for(scope, "every", function);
    if (every) {
        long n = 1;
        int code = 999;
        sscanf(every->value.text, "%ld %d", &n, &code);
        if (++every->asked % n == 0) return code;
    }
    snprintf(key, sizeof key, "error %s", function);
    long long code = number(scope, key, -1);
    if (code < 0 && scope != DRIVER) code = number(scope, "error *", 0);
    return code < 0 ? SUCCESS : (int)code;
}

static int begin(int scope, const char *function) {
    load();
    count_call(function);
    return misbehave(scope, function);
}

static int begin_of(const Device *device, const char *function) {
    int code = begin(device->gpu, function);
    return code == SUCCESS && device->slice >= 0 ? misbehave(SLICE_SCOPE(device->gpu, device->slice), function)
                                                 : code;
}

#define OPEN_SESSION                       \
    do {                                   \
        load();                            \
        int dead = session_code();         \
        if (dead != SUCCESS) return dead;  \
    } while (0)

#define DRIVER_CALL                            \
    do {                                       \
        OPEN_SESSION;                          \
        int code = begin(DRIVER, __func__);    \
        if (code != SUCCESS) return code;      \
    } while (0)

#define DEVICE_CALL                                 \
    do {                                            \
        OPEN_SESSION;                               \
        if (!device) return INVALID_ARGUMENT;       \
        int code = begin_of(device, __func__);      \
        if (code == SUCCESS && device->gpu >= number(DRIVER, "gpus", 1)) code = GPU_IS_LOST; \
        if (code != SUCCESS) return code;           \
    } while (0)

/* A question that the driver does not answer of a MIG slice. */
#define WHOLE_GPU_CALL                                 \
    do {                                               \
        DEVICE_CALL;                                   \
        if (device->slice >= 0) return NOT_SUPPORTED;  \
    } while (0)

/* A question that it answers of neither a slice nor a GPU that is divided into slices. */
#define UNDIVIDED_GPU_CALL                                           \
    do {                                                             \
        WHOLE_GPU_CALL;                                              \
        if (number(device->gpu, "mig", 0)) return NOT_SUPPORTED;     \
    } while (0)

static long long of_slice(const Device *device, const char *key, long long otherwise) {
    return number(SLICE_SCOPE(device->gpu, device->slice), key, otherwise);
}

static unsigned gpu_instance(const Device *device) {
    return (unsigned)of_slice(device, "gpu_instance", FIRST_INSTANCE + device->slice);
}

static unsigned compute_instance(const Device *device) { return (unsigned)of_slice(device, "compute_instance", 0); }

static int has_slice(int gpu, unsigned slice) {
    Device device = {gpu, (int)slice};
    return number(gpu, "mig", 0) && slice < MAX_SLICES && (long long)slice < number(gpu, "mig_slices", 0) &&
           !of_slice(&device, "gone", 0);
}

static int text_out(char *out, unsigned size, const char *text) {
    snprintf(out, size, "%s", text);
    return SUCCESS;
}

/* ---- the library ---- */

static int open_session(const char *function) {
    int code = begin(DRIVER, function);
    if (code != SUCCESS) return code;
    if (!driver_loaded()) return DRIVER_NOT_LOADED;
    pthread_mutex_lock(&sessions);
    if (!open_sessions++) { /* a second session sees nothing anew */
        loaded_number = driver_loaded();
        is_dead = 0;
    }
    pthread_mutex_unlock(&sessions);
    return SUCCESS;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; return open_session(__func__); }
int nvmlInit_v2(void) { return open_session(__func__); }

int nvmlShutdown(void) {
    int code = begin(DRIVER, __func__);
    if (code != SUCCESS) return code;
    pthread_mutex_lock(&sessions);
    code = open_sessions ? SUCCESS : UNINITIALIZED;
    if (open_sessions) open_sessions--;
    pthread_mutex_unlock(&sessions);
    return code;
}

const char *nvmlErrorString(int code) {
    static char text[48];
    snprintf(text, sizeof text, "stand-in error %d", code);
    return text;
}

int nvmlSystemGetDriverVersion(char *out, unsigned size) {
    DRIVER_CALL;
    return text_out(out, size, text_of(DRIVER, "version", "580.95.05"));
}

int nvmlSystemGetNVMLVersion(char *out, unsigned size) {
    DRIVER_CALL;
    return text_out(out, size, "13.580.95.05");
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    DRIVER_CALL;
    *version = (int)number(DRIVER, "cuda", 13000);
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    DRIVER_CALL;
    *count = (unsigned)number(DRIVER, "gpus", 1);
    return SUCCESS;
}

/* ---- handles and names ---- */

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    OPEN_SESSION;
    if (index >= MAX_GPUS || index >= (unsigned)number(DRIVER, "gpus", 1)) return INVALID_ARGUMENT;
    int code = begin((int)index, __func__);
    if (code != SUCCESS) return code;
    gpus[index] = (Device){(int)index, -1};
    *device = &gpus[index];
    return SUCCESS;
}

int nvmlDeviceGetName(Device *device, char *out, unsigned size) {
    DEVICE_CALL;
    const char *name = text_of(device->gpu, "name", "NVIDIA H200");
    if (device->slice < 0) return text_out(out, size, name);
    char made[120];
    int scope = SLICE_SCOPE(device->gpu, device->slice);
    snprintf(made, sizeof made, "%.70s MIG %.40s", name, text_of(scope, "profile", "1g.18gb"));
    return text_out(out, size, text_of(scope, "name", made));
}

int nvmlDeviceGetUUID(Device *device, char *out, unsigned size) {
    DEVICE_CALL;
    char made[64];
    if (device->slice >= 0)
        snprintf(made, sizeof made, "MIG-00000000-0000-0000-%04d-%012d", device->slice, device->gpu);
    else
        snprintf(made, sizeof made, "GPU-00000000-0000-0000-0000-%012d", device->gpu);
    int scope = device->slice < 0 ? device->gpu : SLICE_SCOPE(device->gpu, device->slice);
    return text_out(out, size, text_of(scope, "uuid", made));
}

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} PciInfo;

int nvmlDeviceGetPciInfo_v3(Device *device, PciInfo *info) {
    DEVICE_CALL;
    memset(info, 0, sizeof *info);
    info->domain = (unsigned)number(device->gpu, "pci_domain", 0);
    info->bus = (unsigned)number(device->gpu, "pci_bus", 0x1b + device->gpu);
    info->device = (unsigned)number(device->gpu, "pci_device", 0);
    snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "%04X:%02X:%02X.0", (uint16_t)info->domain,
             (uint8_t)info->bus, (uint8_t)info->device);
    snprintf(info->bus_id, sizeof info->bus_id, "%08X:%02X:%02X.0", info->domain, info->bus, info->device);
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *count) {
    DEVICE_CALL;
    *count = number(device->gpu, "mig", 0) ? 7 : 0;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, Device **slice) {
    DEVICE_CALL;
    if (device->slice >= 0 || index >= MAX_SLICES) return INVALID_ARGUMENT;
    if (!has_slice(device->gpu, index)) return NOT_FOUND;
    slices[device->gpu][index] = (Device){device->gpu, (int)index};
    *slice = &slices[device->gpu][index];
    return SUCCESS;
}

/* ---- questions with one number as the answer: function, type, key, default ---- */

#define NUMBER(function, type, key, otherwise)                \
    int function(Device *device, type *value) {               \
        WHOLE_GPU_CALL;                                       \
        *value = (type)number(device->gpu, key, otherwise);   \
        return SUCCESS;                                       \
    }

NUMBER(nvmlDeviceGetPowerUsage, unsigned, "power_mw", 120000)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned, "power_limit_mw", 700000)
NUMBER(nvmlDeviceGetPowerManagementLimit, unsigned, "power_limit_mw", 700000)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, "power_default_limit_mw", 700000)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, "pcie_generation_max", 5)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, unsigned, "pcie_width_max", 16)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, "pcie_generation", 5)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, unsigned, "pcie_width", 16)
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, "event_reasons", 0)
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, "event_reasons", 0)
NUMBER(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, "energy_mj", 1000000)
NUMBER(nvmlDeviceGetPerformanceState, int, "pstate", 0)
NUMBER(nvmlDeviceGetIndex, unsigned, "index", device->gpu)
NUMBER(nvmlDeviceGetMinorNumber, unsigned, "minor", device->gpu)
NUMBER(nvmlDeviceGetComputeMode, int, "compute_mode", 0)
NUMBER(nvmlDeviceGetPersistenceMode, int, "persistence", 1)
NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, int, "retired_pages_pending", 0)
NUMBER(nvmlDeviceGetDisplayActive, int, "display_active", 0)

/* ---- questions of another form ---- */

int nvmlDeviceGetApplicationsClock(Device *device, int kind, unsigned *megahertz) {
    (void)kind;
    WHOLE_GPU_CALL;
    *megahertz = (unsigned)number(device->gpu, "sm_clock_set_mhz", 1980);
    return SUCCESS;
}

int nvmlDeviceGetDefaultApplicationsClock(Device *device, int kind, unsigned *megahertz) {
    (void)kind;
    WHOLE_GPU_CALL;
    *megahertz = 1980;
    return SUCCESS;
}

int nvmlDeviceGetNvLinkState(Device *device, unsigned link, unsigned *is_up) {
    WHOLE_GPU_CALL;
    unsigned links = (unsigned)number(device->gpu, "nvlinks", 0);
    if (link >= links) return links ? INVALID_ARGUMENT : NOT_SUPPORTED;
    *is_up = link >= (unsigned)number(device->gpu, "nvlinks_down", 0);
    return SUCCESS;
}

int nvmlDeviceGetFanSpeed(Device *device, unsigned *percent) {
    WHOLE_GPU_CALL;
    *percent = (unsigned)number(device->gpu, "fan_pct", 0);
    return find(device->gpu, "fan_pct") ? SUCCESS : NOT_SUPPORTED; /* passively cooled */
}

int nvmlDeviceGetTemperatureThreshold(Device *device, int kind, unsigned *celsius) {
    WHOLE_GPU_CALL;
    const char *key = kind == 0 ? "shutdown_c" : kind == 1 ? "slowdown_c" : "gpu_max_c";
    *celsius = (unsigned)number(device->gpu, key, 92 - 5 * kind);
    return kind <= 3 ? SUCCESS : NOT_SUPPORTED;
}

typedef struct {
    unsigned version;
    int celsius;
} Margin;

int nvmlDeviceGetMarginTemperature(Device *device, Margin *margin) {
    WHOLE_GPU_CALL;
    margin->celsius = (int)number(device->gpu, "margin_c", 45);
    return SUCCESS;
}

int nvmlDeviceGetMaxClockInfo(Device *device, int kind, unsigned *megahertz) {
    static const char *const keys[] = {"graphics_clock_max_mhz", "sm_clock_max_mhz", "memory_clock_max_mhz",
                                       "video_clock_max_mhz"};
    static const unsigned otherwise[] = {1980, 1980, 3201, 1545};
    WHOLE_GPU_CALL;
    if (kind < 0 || kind > 3) return INVALID_ARGUMENT;
    *megahertz = (unsigned)number(device->gpu, keys[kind], otherwise[kind]);
    return SUCCESS;
}

int nvmlDeviceGetEncoderUtilization(Device *device, unsigned *percent, unsigned *period_us) {
    UNDIVIDED_GPU_CALL;
    *percent = (unsigned)number(device->gpu, "encoder_pct", 0);
    *period_us = 167000;
    return SUCCESS;
}

int nvmlDeviceGetDecoderUtilization(Device *device, unsigned *percent, unsigned *period_us) {
    UNDIVIDED_GPU_CALL;
    *percent = (unsigned)number(device->gpu, "decoder_pct", 0);
    *period_us = 167000;
    return SUCCESS;
}

int nvmlDeviceGetTotalEccErrors(Device *device, int type, int counter, unsigned long long *count) {
    (void)counter;
    WHOLE_GPU_CALL;
    *count = (unsigned long long)number(device->gpu, type ? "ecc_uncorrected" : "ecc_corrected", 0);
    return SUCCESS;
}

/* As long as the real one: it watches a counter for 20 ms. */
int nvmlDeviceGetRemappedRows(Device *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                              unsigned *failed) {
    WHOLE_GPU_CALL;
    if (number(device->gpu, "remapped_rows", -1) < 0) return NOT_SUPPORTED;
    *corrected = (unsigned)number(device->gpu, "remapped_rows", 0);
    *uncorrected = 0;
    *pending = (unsigned)number(device->gpu, "remapping_pending", 0);
    *failed = (unsigned)number(device->gpu, "remapping_failed", 0);
    return SUCCESS;
}

/* Events: a set watches one GPU, and reports its `xid` as often as `xids` says. */
typedef struct {
    Device *device;
    unsigned reported;
} EventSet;

typedef struct {
    Device *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
} EventData;

int nvmlEventSetCreate(EventSet **set) {
    DRIVER_CALL;
    *set = calloc(1, sizeof **set);
    return SUCCESS;
}

int nvmlDeviceRegisterEvents(Device *device, unsigned long long types, EventSet *set) {
    WHOLE_GPU_CALL;
    if (types != 8) return INVALID_ARGUMENT; /* nvmlEventTypeXidCriticalError */
    set->device = device;
    return SUCCESS;
}

int nvmlEventSetWait_v2(EventSet *set, EventData *event, unsigned timeout_ms) {
    Device *device = set->device;
    (void)timeout_ms;
    WHOLE_GPU_CALL;
    if (set->reported >= (unsigned)number(device->gpu, "xids", 0)) return TIMEOUT;
    set->reported++;
    *event = (EventData){device, 8, (unsigned long long)number(device->gpu, "xid", 0), 0xFFFFFFFFu, 0xFFFFFFFFu};
    return SUCCESS;
}

int nvmlEventSetFree(EventSet *set) {
    DRIVER_CALL;
    free(set);
    return SUCCESS;
}

int nvmlDeviceGetPcieThroughput(Device *device, int counter, unsigned *kib_per_s) {
    WHOLE_GPU_CALL;
    usleep(20000);
    *kib_per_s = (unsigned)number(device->gpu, counter ? "pcie_rx_kib_per_s" : "pcie_tx_kib_per_s", 0);
    return SUCCESS;
}

int nvmlDeviceGetViolationStatus(Device *device, int policy, unsigned long long *times) {
    WHOLE_GPU_CALL;
    const Line *line = find_numbered(device->gpu, "violation", (unsigned)policy);
    times[0] = (unsigned long long)(age_s() * 1e6);
    times[1] = line ? (unsigned long long)whole(&line->value) : 0;
    return line ? SUCCESS : NOT_SUPPORTED;
}

/* ---- MIG ---- */

int nvmlDeviceIsMigDeviceHandle(Device *device, unsigned *is_slice) {
    DEVICE_CALL;
    *is_slice = device->slice >= 0;
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceId(Device *device, unsigned *id) {
    DEVICE_CALL;
    if (device->slice < 0) return NOT_SUPPORTED;
    *id = gpu_instance(device);
    return SUCCESS;
}

int nvmlDeviceGetComputeInstanceId(Device *device, unsigned *id) {
    DEVICE_CALL;
    if (device->slice < 0) return NOT_SUPPORTED;
    *id = compute_instance(device);
    return SUCCESS;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device *device, Device **gpu) {
    DEVICE_CALL;
    *gpu = &gpus[device->gpu];
    return SUCCESS;
}

/* ---- processes ---- */

typedef struct {
    unsigned pid, sm; /* all ones: not told */
    int slice;        /* -1: on the whole GPU */
    char kind[4];
    unsigned long long memory;
} Process;

static int processes_of(const Device *device, Process *found) {
    const Scenario *now = scenario;
    int count = 0;
    for (int i = 0; now && i < now->count; i++) {
        const Line *line = &now->lines[i];
        if (line->scope != device->gpu || strncmp(line->key, "process ", 8)) continue;
        Process process = {.pid = (unsigned)strtoul(line->key + 8, NULL, 10), .slice = -1};
        char memory[24] = "-", sm[24] = "-";
        sscanf(line->value.text, "%3s %23s %23s %d", process.kind, memory, sm, &process.slice);
        process.memory = *memory == '-' ? ~0ULL : strtoull(memory, NULL, 10) * MIB;
        process.sm = *sm == '-' ? ~0u : (unsigned)strtoul(sm, NULL, 10);
        int at = 0;
        while (at < count && found[at].pid != process.pid) at++;
        if (at < count) {
            memmove(&found[at], &found[at + 1], (size_t)(count - at - 1) * sizeof *found);
            count--;
        }
        if (*process.kind != '-' && count < MAX_PROCESSES) found[count++] = process;
    }
    int kept = 0;
    for (int i = 0; i < count; i++)
        if (device->slice < 0 || found[i].slice == device->slice) found[kept++] = found[i];
    return kept;
}

typedef struct {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
} ProcessInfo;

typedef struct {
    ProcessInfo info;
    unsigned long long protected_memory;
} WideProcessInfo;

static int driver_is_before(int major, int minor) {
    int has[2] = {0, 0};
    sscanf(text_of(DRIVER, "version", "580.95.05"), "%d.%d", &has[0], &has[1]);
    return has[0] < major || (has[0] == major && has[1] < minor);
}

static int list_processes(const Device *device, char kind, unsigned *room, void *out, size_t entry) {
    Process found[MAX_PROCESSES];
    unsigned count = 0, given = *room;
    int all = processes_of(device, found);
    for (int i = 0; i < all; i++) {
        if (!strchr(found[i].kind, kind)) continue;
        Device slice = {device->gpu, found[i].slice};
        WideProcessInfo one = {{found[i].pid, found[i].memory, found[i].slice < 0 ? ~0u : gpu_instance(&slice),
                                found[i].slice < 0 ? ~0u : compute_instance(&slice)}, 0};
        if (out && count < given) memcpy((char *)out + count * entry, &one, entry);
        count++;
    }
    *room = count;
    return count > given || (count && !out) ? INSUFFICIENT_SIZE : SUCCESS;
}

static int list_processes_3(const Device *device, char kind, unsigned *room, void *out) {
    int is_wide = !driver_is_before(535, 43) && driver_is_before(535, 98);
    int is_there = !driver_is_before(510, 0) && (is_wide || driver_is_before(535, 43) || !driver_is_before(535, 99));
    if (!is_there) return FUNCTION_NOT_FOUND;
    return list_processes(device, kind, room, out, is_wide ? sizeof(WideProcessInfo) : sizeof(ProcessInfo));
}

int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *room, void *out) {
    DEVICE_CALL;
    return list_processes_3(device, 'C', room, out);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(Device *device, unsigned *room, void *out) {
    DEVICE_CALL;
    return list_processes_3(device, 'G', room, out);
}

int nvmlDeviceGetComputeRunningProcesses_v2(Device *device, unsigned *room, ProcessInfo *out) {
    DEVICE_CALL;
    return list_processes(device, 'C', room, out, sizeof *out);
}

int nvmlDeviceGetGraphicsRunningProcesses_v2(Device *device, unsigned *room, ProcessInfo *out) {
    DEVICE_CALL;
    return list_processes(device, 'G', room, out, sizeof *out);
}

/* The first versions, without slices: nvtop does not start where they are missing. */
typedef struct {
    unsigned pid;
    unsigned long long memory;
} ProcessInfo1;

static int list_processes_1(const Device *device, char kind, unsigned *room, ProcessInfo1 *out) {
    ProcessInfo infos[MAX_PROCESSES];
    unsigned given = *room, count = MAX_PROCESSES;
    int code = list_processes(device, kind, &count, infos, sizeof *infos);
    if (code != SUCCESS) return code;
    *room = count;
    if (count > given || (count && !out)) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < count; i++) out[i] = (ProcessInfo1){infos[i].pid, infos[i].memory};
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses(Device *device, unsigned *room, ProcessInfo1 *out) {
    DEVICE_CALL;
    return list_processes_1(device, 'C', room, out);
}

int nvmlDeviceGetGraphicsRunningProcesses(Device *device, unsigned *room, ProcessInfo1 *out) {
    DEVICE_CALL;
    return list_processes_1(device, 'G', room, out);
}

typedef struct {
    unsigned pid;
    unsigned long long timestamp_us;
    unsigned sm, memory, encoder, decoder;
} ProcessSample;

typedef struct {
    unsigned long long timestamp_us;
    unsigned pid, sm, memory, encoder, decoder, jpeg, flow;
} ProcessSample2;

typedef struct {
    unsigned version, room;
    unsigned long long last_seen_us;
    ProcessSample2 *samples;
} ProcessSamples2;

/* Those whose share is told; an idle GPU has none. */
static unsigned busy_processes(const Device *device, Process *found) {
    unsigned count = 0;
    int all = processes_of(device, found);
    for (int i = 0; i < all; i++)
        if (found[i].sm != ~0u) found[count++] = found[i];
    return count;
}

static unsigned long long epoch_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000;
}

int nvmlDeviceGetProcessUtilization(Device *device, ProcessSample *out, unsigned *room,
                                    unsigned long long last_seen_us) {
    UNDIVIDED_GPU_CALL;
    (void)last_seen_us;
    Process found[MAX_PROCESSES];
    unsigned count = busy_processes(device, found), given = *room;
    *room = count;
    if (!count) return NOT_FOUND;
    if (!out || given < count) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < count; i++)
        out[i] = (ProcessSample){found[i].pid, epoch_us(), found[i].sm, found[i].sm / 2, 0, 0};
    return SUCCESS;
}

int nvmlDeviceGetProcessesUtilizationInfo(Device *device, ProcessSamples2 *out) {
    UNDIVIDED_GPU_CALL;
    Process found[MAX_PROCESSES];
    unsigned count = busy_processes(device, found), given = out->room;
    out->room = count;
    if (!count) return NOT_FOUND;
    if (!out->samples || given < count) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < count; i++)
        out->samples[i] = (ProcessSample2){epoch_us(), found[i].pid, found[i].sm, found[i].sm / 2, 0, 0, 0, 0};
    return SUCCESS;
}

/* ---- GPM: metrics of the time between two samples ---- */

typedef struct {
    int gpu, slice;
    double taken_s;
} Sample;

typedef struct {
    unsigned metric;
    int code;
    double value;
    const char *names[3];
} GpmMetric;

typedef struct {
    unsigned version, count;
    Sample *first, *second;
    GpmMetric metrics[];
} GpmMetrics;

typedef struct {
    unsigned version, is_supported;
} GpmSupport;

int nvmlGpmQueryDeviceSupport(Device *device, GpmSupport *support) {
    DEVICE_CALL;
    support->is_supported = number(device->gpu, "gpm_supported", number(device->gpu, "compute_capability", 90) >= 90);
    return SUCCESS;
}

int nvmlGpmSampleAlloc(Sample **sample) {
    DRIVER_CALL;
    *sample = calloc(1, sizeof **sample);
    return SUCCESS;
}

int nvmlGpmSampleFree(Sample *sample) {
    DRIVER_CALL;
    free(sample);
    return SUCCESS;
}

int nvmlGpmSampleGet(Device *device, Sample *sample) {
    WHOLE_GPU_CALL;
    *sample = (Sample){device->gpu, -1, monotonic_s()};
    return SUCCESS;
}

int nvmlGpmMigSampleGet(Device *device, unsigned instance, Sample *sample) {
    DEVICE_CALL;
    if (device->slice >= 0) return INVALID_ARGUMENT; /* it is asked of the GPU that holds the instance */
    for (unsigned slice = 0; slice < MAX_SLICES; slice++) {
        Device found = {device->gpu, (int)slice};
        if (!has_slice(device->gpu, slice) || gpu_instance(&found) != instance) continue;
        *sample = (Sample){device->gpu, (int)slice, monotonic_s()};
        return SUCCESS;
    }
    return NOT_FOUND;
}

int nvmlGpmMetricsGet(GpmMetrics *wanted) {
    DRIVER_CALL;
    if (wanted->version != 1) return VERSION_MISMATCH;
    if (!wanted->first || !wanted->second) return INVALID_ARGUMENT;
    if (wanted->second->taken_s <= wanted->first->taken_s) return INVALID_ARGUMENT;
    for (unsigned i = 0; i < wanted->count; i++) {
        GpmMetric *metric = &wanted->metrics[i];
        const Sample *last = wanted->second;
        const Line *line = NULL;
        if (last->slice >= 0) line = find_numbered(SLICE_SCOPE(last->gpu, last->slice), "gpm", metric->metric);
        if (!line) line = find_numbered(last->gpu, "gpm", metric->metric);
        metric->code = line ? SUCCESS : NOT_SUPPORTED;
        metric->value = line ? moving(&line->value) : 0;
    }
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(Device *device, int *major, int *minor) {
    DEVICE_CALL;
    int capability = (int)number(device->gpu, "compute_capability", 90); /* 90 is 9.0 */
    *major = capability / 10;
    *minor = capability % 10;
    return SUCCESS;
}

int nvmlDeviceGetEccMode(Device *device, int *current, int *pending) {
    WHOLE_GPU_CALL;
    *current = *pending = (int)number(device->gpu, "ecc", 1);
    return SUCCESS;
}

int nvmlDeviceGetMigMode(Device *device, unsigned *current, unsigned *pending) {
    WHOLE_GPU_CALL;
    *current = *pending = (unsigned)number(device->gpu, "mig", 0);
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(Device *device, unsigned *rates) {
    UNDIVIDED_GPU_CALL;
    rates[0] = (unsigned)number(device->gpu, "sm_busy_pct", 0);
    rates[1] = (unsigned)number(device->gpu, "memory_busy_pct", 0);
    return SUCCESS;
}

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} Memory2;

static void memory_of(const Device *device, Memory2 *memory) {
    int gpu = device->gpu;
    memory->total = number(gpu, "memory_total_mib", 143771) * MIB;
    memory->reserved = number(gpu, "memory_reserved_mib", 600) * MIB;
    memory->used = number(gpu, "memory_used_mib", 0) * MIB;
    if (device->slice >= 0) {
        memory->total = of_slice(device, "memory_total_mib", (long long)(memory->total / MIB / 8)) * MIB;
        memory->reserved = of_slice(device, "memory_reserved_mib", 60) * MIB;
        memory->used = of_slice(device, "memory_used_mib", 0) * MIB;
    }
    memory->free = memory->total - memory->reserved - memory->used;
}

int nvmlDeviceGetMemoryInfo(Device *device, unsigned long long *answer) {
    DEVICE_CALL;
    Memory2 memory;
    memory_of(device, &memory);
    answer[0] = memory.total;
    answer[1] = memory.free;
    answer[2] = memory.used + memory.reserved; /* version 1 does not tell them apart */
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(Device *device, Memory2 *memory) {
    DEVICE_CALL;
    memory_of(device, memory);
    return SUCCESS;
}

int nvmlDeviceGetTemperature(Device *device, int sensor, unsigned *celsius) {
    (void)sensor;
    WHOLE_GPU_CALL;
    *celsius = (unsigned)number(device->gpu, "temperature_c", 40);
    return SUCCESS;
}

typedef struct {
    unsigned version;
    int sensor, celsius;
} Temperature1;

int nvmlDeviceGetTemperatureV(Device *device, Temperature1 *temperature) {
    WHOLE_GPU_CALL;
    temperature->celsius = (int)number(device->gpu, "temperature_c", 40);
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(Device *device, int kind, unsigned *megahertz) {
    static const char *const keys[] = {"graphics_clock_mhz", "sm_clock_mhz", "memory_clock_mhz",
                                       "video_clock_mhz"};
    static const unsigned otherwise[] = {1980, 1980, 3201, 1545};
    WHOLE_GPU_CALL;
    if (kind < 0 || kind > 3) return INVALID_ARGUMENT;
    *megahertz = (unsigned)number(device->gpu, keys[kind], otherwise[kind]);
    return SUCCESS;
}

typedef struct {
    uint32_t field, scope;
    int64_t timestamp_us, latency_us;
    int value_type, code;
    union {
        double d;
        unsigned u;
        unsigned long long ull;
    } value;
} FieldValue;

int nvmlDeviceGetFieldValues(Device *device, int count, FieldValue *values) {
    WHOLE_GPU_CALL;
    for (int i = 0; i < count; i++) {
        const Line *line = find_numbered(device->gpu, "field", values[i].field);
        values[i].timestamp_us = (int64_t)epoch_us();
        values[i].latency_us = 3;
        values[i].value_type = line && whole(&line->value) < 0 ? 4 : 3; /* unsigned long long, or signed */
        values[i].code = line ? SUCCESS : (int)number(device->gpu, "absent_field_code", NOT_SUPPORTED);
        values[i].value.ull = line ? (unsigned long long)whole(&line->value) : 0;
    }
    return SUCCESS;
}
