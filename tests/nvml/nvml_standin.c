/* A stand-in for libnvidia-ml.so.1, driven by a text file named in GPUTUI_NVML_SCENARIO.
 *
 * Lines of the file: SCOPE KEY VALUE, where SCOPE is `driver`, the number of a GPU, or `*` for every
 * GPU; `#` begins a comment. A later line wins, and one with a number wins over one with `*`.
 *
 *   driver gpus 2                         GPUs the driver counts
 *   driver version 580.95.05              driver version
 *   driver cuda 13000                     highest CUDA
 *   driver error nvmlInitWithFlags 9      return code of a function without a device
 *   0 name NVIDIA H200                    see the questions below for the keys and their defaults
 *   1 error nvmlDeviceGetPowerUsage 3     return code of a function for this GPU
 *   1 error * 15                          return code of every function for this GPU
 *   1 delay_ms nvmlDeviceGetPowerUsage 25 time the function takes
 *   0 field 186 345000                    a field value; one that is not given is not supported
 *
 * The file is read again whenever it changed, so that a test can let a GPU be lost while it is watched.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, UNKNOWN = 999 };
enum { MAX_LINES = 4096, MAX_GPUS = 64, MAX_SLICES = 8 };

typedef struct {
    char scope[16];
    char key[112];
    char value[160];
} Line;

/* A handle: a GPU, or one MIG slice of it. */
typedef struct {
    int gpu;
    int slice; /* -1 for the whole GPU */
} Device;

static Line lines[MAX_LINES];
static int line_count;
static Device gpus[MAX_GPUS];
static Device slices[MAX_GPUS][MAX_SLICES];

static void load(void) {
    static struct timespec seen;
    static off_t seen_size = -1;
    const char *path = getenv("GPUTUI_NVML_SCENARIO");
    struct stat status;
    if (!path || stat(path, &status)) return;
    if (status.st_size == seen_size && status.st_mtim.tv_sec == seen.tv_sec &&
        status.st_mtim.tv_nsec == seen.tv_nsec)
        return;
    FILE *file = fopen(path, "r");
    if (!file) return;
    seen = status.st_mtim;
    seen_size = status.st_size;
    line_count = 0;
    char text[320];
    while (line_count < MAX_LINES && fgets(text, sizeof text, file)) {
        char *comment = strchr(text, '#');
        if (comment) *comment = 0;
        text[strcspn(text, "\n")] = 0;
        Line *line = &lines[line_count];
        int used = 0;
        char word[80];
        if (sscanf(text, "%15s %79s %n", line->scope, word, &used) < 2) continue;
        snprintf(line->key, sizeof line->key, "%s", word);
        char *rest = text + used;
        if (!strcmp(word, "error") || !strcmp(word, "delay_ms") || !strcmp(word, "field")) {
            char name[80] = "";
            int skip = 0;
            sscanf(rest, "%79s %n", name, &skip);
            snprintf(line->key, sizeof line->key, "%.20s %.79s", word, name);
            rest += skip;
        }
        snprintf(line->value, sizeof line->value, "%s", rest);
        for (size_t end = strlen(line->value); end && line->value[end - 1] == ' '; end--)
            line->value[end - 1] = 0;
        line_count++;
    }
    fclose(file);
}

static const char *find(const char *scope, const char *key) {
    for (int i = line_count - 1; i >= 0; i--)
        if (!strcmp(lines[i].scope, scope) && !strcmp(lines[i].key, key)) return lines[i].value;
    return NULL;
}

static const char *of_gpu(int gpu, const char *key) {
    char scope[16];
    snprintf(scope, sizeof scope, "%d", gpu);
    const char *value = find(scope, key);
    return value ? value : find("*", key);
}

static long long number(int gpu, const char *key, long long otherwise) {
    const char *value = of_gpu(gpu, key);
    return value ? strtoll(value, NULL, 0) : otherwise;
}

static long long driver_number(const char *key, long long otherwise) {
    const char *value = find("driver", key);
    return value ? strtoll(value, NULL, 0) : otherwise;
}

/* Waits and fails as the scenario says; gpu -1 for a function without a device. */
static int begin(int gpu, const char *function) {
    char key[112];
    load();
    snprintf(key, sizeof key, "delay_ms %s", function);
    long long delay = gpu < 0 ? driver_number(key, 0) : number(gpu, key, 0);
    if (delay > 0) usleep((useconds_t)delay * 1000);
    snprintf(key, sizeof key, "error %s", function);
    long long code = gpu < 0 ? driver_number(key, -1) : number(gpu, key, -1);
    if (code < 0 && gpu >= 0) code = number(gpu, "error *", 0);
    return code < 0 ? SUCCESS : (int)code;
}

#define DRIVER_CALL                        \
    do {                                   \
        int code = begin(-1, __func__);    \
        if (code != SUCCESS) return code;  \
    } while (0)

#define DEVICE_CALL                                 \
    do {                                            \
        if (!device) return INVALID_ARGUMENT;       \
        int code = begin(device->gpu, __func__);    \
        if (code != SUCCESS) return code;           \
    } while (0)

static int text_out(char *out, unsigned size, const char *text) {
    snprintf(out, size, "%s", text);
    return SUCCESS;
}

/* ---- the library ---- */

int nvmlInitWithFlags(unsigned flags) { (void)flags; DRIVER_CALL; return SUCCESS; }
int nvmlInit_v2(void) { DRIVER_CALL; return SUCCESS; }
int nvmlShutdown(void) { DRIVER_CALL; return SUCCESS; }

const char *nvmlErrorString(int code) {
    static char text[48];
    snprintf(text, sizeof text, "stand-in error %d", code);
    return text;
}

int nvmlSystemGetDriverVersion(char *out, unsigned size) {
    DRIVER_CALL;
    const char *version = find("driver", "version");
    return text_out(out, size, version ? version : "580.95.05");
}

int nvmlSystemGetNVMLVersion(char *out, unsigned size) {
    DRIVER_CALL;
    return text_out(out, size, "13.580.95.05");
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    DRIVER_CALL;
    *version = (int)driver_number("cuda", 13000);
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    DRIVER_CALL;
    *count = (unsigned)driver_number("gpus", 1);
    return SUCCESS;
}

/* ---- handles and names ---- */

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    load();
    if (index >= MAX_GPUS || index >= (unsigned)driver_number("gpus", 1)) return INVALID_ARGUMENT;
    int code = begin((int)index, __func__);
    if (code != SUCCESS) return code;
    gpus[index] = (Device){(int)index, -1};
    *device = &gpus[index];
    return SUCCESS;
}

int nvmlDeviceGetName(Device *device, char *out, unsigned size) {
    DEVICE_CALL;
    const char *name = of_gpu(device->gpu, "name");
    return text_out(out, size, name ? name : "NVIDIA H200");
}

int nvmlDeviceGetUUID(Device *device, char *out, unsigned size) {
    DEVICE_CALL;
    const char *uuid = of_gpu(device->gpu, "uuid");
    char made[64];
    if (device->slice >= 0)
        snprintf(made, sizeof made, "MIG-00000000-0000-0000-%04d-%012d", device->slice, device->gpu);
    else
        snprintf(made, sizeof made, "GPU-00000000-0000-0000-0000-%012d", device->gpu);
    return text_out(out, size, uuid && device->slice < 0 ? uuid : made);
}

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} PciInfo;

int nvmlDeviceGetPciInfo_v3(Device *device, PciInfo *info) {
    DEVICE_CALL;
    memset(info, 0, sizeof *info);
    info->bus = (unsigned)number(device->gpu, "pci_bus", 0x1b + device->gpu);
    snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "0000:%02X:00.0", info->bus);
    snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", info->bus);
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *count) {
    DEVICE_CALL;
    *count = number(device->gpu, "mig", 0) ? 7 : 0;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, Device **slice) {
    DEVICE_CALL;
    if (index >= MAX_SLICES || (long long)index >= number(device->gpu, "mig_slices", 0)) return NOT_FOUND;
    slices[device->gpu][index] = (Device){device->gpu, (int)index};
    *slice = &slices[device->gpu][index];
    return SUCCESS;
}

/* ---- questions with one number as the answer: function, type, key, default ---- */

#define NUMBER(function, type, key, otherwise)                \
    int function(Device *device, type *value) {               \
        DEVICE_CALL;                                          \
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

/* ---- questions of another form ---- */

int nvmlDeviceGetCudaComputeCapability(Device *device, int *major, int *minor) {
    DEVICE_CALL;
    int capability = (int)number(device->gpu, "compute_capability", 90); /* 90 is 9.0 */
    *major = capability / 10;
    *minor = capability % 10;
    return SUCCESS;
}

int nvmlDeviceGetEccMode(Device *device, int *current, int *pending) {
    DEVICE_CALL;
    *current = *pending = (int)number(device->gpu, "ecc", 1);
    return SUCCESS;
}

int nvmlDeviceGetMigMode(Device *device, unsigned *current, unsigned *pending) {
    DEVICE_CALL;
    *current = *pending = (unsigned)number(device->gpu, "mig", 0);
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(Device *device, unsigned *rates) {
    DEVICE_CALL;
    rates[0] = (unsigned)number(device->gpu, "sm_busy_pct", 0);
    rates[1] = (unsigned)number(device->gpu, "memory_busy_pct", 0);
    return SUCCESS;
}

#define MIB (1ULL << 20)

int nvmlDeviceGetMemoryInfo(Device *device, unsigned long long *memory) {
    DEVICE_CALL;
    unsigned long long total = number(device->gpu, "memory_total_mib", 143771) * MIB;
    unsigned long long used = number(device->gpu, "memory_used_mib", 0) * MIB;
    used += number(device->gpu, "memory_reserved_mib", 600) * MIB; /* version 1 counts it as used */
    memory[0] = total;
    memory[1] = total - used;
    memory[2] = used;
    return SUCCESS;
}

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} Memory2;

int nvmlDeviceGetMemoryInfo_v2(Device *device, Memory2 *memory) {
    DEVICE_CALL;
    memory->total = number(device->gpu, "memory_total_mib", 143771) * MIB;
    memory->reserved = number(device->gpu, "memory_reserved_mib", 600) * MIB;
    memory->used = number(device->gpu, "memory_used_mib", 0) * MIB;
    memory->free = memory->total - memory->reserved - memory->used;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(Device *device, int sensor, unsigned *celsius) {
    (void)sensor;
    DEVICE_CALL;
    *celsius = (unsigned)number(device->gpu, "temperature_c", 40);
    return SUCCESS;
}

typedef struct {
    unsigned version;
    int sensor, celsius;
} Temperature1;

int nvmlDeviceGetTemperatureV(Device *device, Temperature1 *temperature) {
    DEVICE_CALL;
    temperature->celsius = (int)number(device->gpu, "temperature_c", 40);
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(Device *device, int kind, unsigned *megahertz) {
    static const char *const keys[] = {"graphics_clock_mhz", "sm_clock_mhz", "memory_clock_mhz",
                                       "video_clock_mhz"};
    static const unsigned otherwise[] = {1980, 1980, 3201, 1545};
    DEVICE_CALL;
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
    DEVICE_CALL;
    for (int i = 0; i < count; i++) {
        char key[32];
        snprintf(key, sizeof key, "field %u", values[i].field);
        const char *value = of_gpu(device->gpu, key);
        values[i].value.ull = 0;
        values[i].latency_us = 3;
        values[i].value_type = 3;
        values[i].code = value ? SUCCESS : NOT_SUPPORTED;
        if (value) values[i].value.ull = strtoull(value, NULL, 0);
    }
    return SUCCESS;
}
